// Decoding steps of a lane, recorded: a step of the same sequences is the same calls again, and a
// device starts a recording in less time than the calls take to issue.
#ifndef DELTAFILL_WORKER_MODEL_STEP_RECORDER_H_
#define DELTAFILL_WORKER_MODEL_STEP_RECORDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/operators.h"

namespace deltafill::worker {

// Used by the lane's thread; goes before the lane's operators and memory.
class StepRecorder {
 public:
  // Issues one step of the sequences with these states: by `issue`, or as a recording of what
  // `issue` did, once the same states have stepped a few times in a row. Backends without
  // recordings, and steps that cannot be recorded, are issued every time.
  absl::Status Step(kernels::Operators& operators, std::span<void* const> states,
                    std::span<const uint32_t> tokens, const std::function<absl::Status()>& issue);

  // Before any other call on the lane: it may move memory that the operators work in.
  void Forget();

 private:
  // Sets recording_, or leaves it empty where the step cannot be recorded: issuing it then tells
  // whatever else is wrong.
  void Record(kernels::Operators& operators, const std::function<absl::Status()>& issue);

  std::vector<void*> states_;  // of the last step
  int steps_ = 0;              // of these states, in a row
  std::unique_ptr<kernels::Recording> recording_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_STEP_RECORDER_H_
