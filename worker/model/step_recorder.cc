#include "worker/model/step_recorder.h"

#include <algorithm>
#include <utility>

#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

// Recording a step costs as much as issuing several.
constexpr int kStepsBeforeRecording = 4;

}  // namespace

void StepRecorder::Forget() {
  recording_.reset();
  states_.clear();
  steps_ = 0;
}

void StepRecorder::Record(kernels::Operators& operators,
                          const std::function<absl::Status()>& issue) {
  if (!operators.BeginRecording().ok()) return;
  const absl::Status issued = issue();
  std::unique_ptr<kernels::Recording> recording;
  const kernels::Status ended = operators.EndRecording(&recording);
  if (issued.ok() && ended.ok()) recording_ = std::move(recording);
}

absl::Status StepRecorder::Step(kernels::Operators& operators, std::span<void* const> states,
                                std::span<const uint32_t> tokens,
                                const std::function<absl::Status()>& issue) {
  if (!std::equal(states.begin(), states.end(), states_.begin(), states_.end())) {
    Forget();
    states_.assign(states.begin(), states.end());
  }
  if (steps_ <= kStepsBeforeRecording) ++steps_;  // one try for the same states
  if (steps_ == kStepsBeforeRecording) Record(operators, issue);
  if (recording_ != nullptr) return FromOperator(operators.Replay(*recording_, tokens));
  return issue();
}

}  // namespace deltafill::worker
