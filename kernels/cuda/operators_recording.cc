// Recordings of a lane.
#include <string>

#include "kernels/cuda/operators.h"
#include "kernels/cuda/recording.h"

namespace deltafill::kernels::cuda {

Status CudaOperators::RefuseInRecording(const char* what) const {
  if (recording_ == nullptr) return {};
  return {StatusCode::kUnsupported, std::string(what) + ": cannot be recorded"};
}

Status CudaOperators::BeginRecording() {
  if (Status s = Enter(); !s.ok()) return s;
  if (recording_ != nullptr) return InvalidArgument("BeginRecording: a recording is under way");
  auto recording = std::make_unique<CudaRecording>();
  if (Status s = recording->Begin(stream_.get()); !s.ok()) return s;
  recording_ = std::move(recording);
  return {};
}

Status CudaOperators::EndRecording(std::unique_ptr<Recording>* out) {
  out->reset();
  if (Status s = Enter(); !s.ok()) return s;
  if (recording_ == nullptr) return InvalidArgument("EndRecording: no recording is under way");
  std::unique_ptr<CudaRecording> recording = std::move(recording_);
  if (Status s = recording->End(stream_.get()); !s.ok()) return s;
  *out = std::move(recording);
  return {};
}

Status CudaOperators::Replay(Recording& recording, std::span<const uint32_t> tokens) {
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = RefuseInRecording("Replay"); !s.ok()) return s;
  auto* const graph = dynamic_cast<CudaRecording*>(&recording);
  if (graph == nullptr) return InvalidArgument("recording: was not made by a CUDA backend");
  return graph->Replay(tokens, stream_.get());
}

}  // namespace deltafill::kernels::cuda
