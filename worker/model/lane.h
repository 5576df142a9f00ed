// What one execution lane owns: its operators and the memory of a pass.
#ifndef DELTAFILL_WORKER_MODEL_LANE_H_
#define DELTAFILL_WORKER_MODEL_LANE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/operators.h"
#include "worker/model/device_buffer.h"
#include "worker/model/layer.h"
#include "worker/model/step_recorder.h"

namespace deltafill::worker {

// Host arrays that operators' params point to; cleared and refilled by each layer, so that a pass
// allocates nothing once they have grown.
struct PassPointers {
  std::vector<const float*> tails_in;
  std::vector<int64_t> tail_ends;
  std::vector<float*> tails;
  std::vector<const float*> states_in;
  std::vector<float*> states;
  std::vector<kernels::StateCheckpoint> checkpoints;
  std::vector<kernels::LatentSequence> latents;
};

struct LaneSizes {
  int64_t rows_max = 0;
  int64_t hidden = 0;
  int64_t scratch_width = 0;  // the widest of the layers
  int64_t vocabulary = 0;
};

// Bytes of a lane's buffers; what its operators take beside them is the backend's.
size_t LaneBytes(const LaneSizes& sizes, kernels::DType activation);

class Lane {
 public:
  // RESOURCE_EXHAUSTED with the sizes if the memory does not fit.
  static absl::StatusOr<std::shared_ptr<Lane>> Create(kernels::Backend& backend, int threads,
                                                      const LaneSizes& sizes);

  // Waits for the lane's work, which uses the buffers.
  ~Lane();

  // Rows of a pass over the sequences in `offsets`.
  PassRows Rows(kernels::SequenceOffsets offsets);

  kernels::Operators& operators() { return *operators_; }
  StepRecorder& steps() { return steps_; }
  const LaneSizes& sizes() const { return sizes_; }
  // [kBlockTokens, vocabulary]
  float* logits() const { return static_cast<float*>(logits_.get()); }

  std::vector<int64_t> offsets;  // of the pass at hand
  std::vector<uint32_t> tokens;  // packed
  std::vector<void*> step_states;
  int64_t last_rows = 0;  // rows of `normed` that hold last tokens, ready for the logits

 private:
  Lane() = default;

  LaneSizes sizes_;
  int64_t row_capacity_ = 0;
  kernels::DType dtype_ = kernels::DType::kF32;
  std::unique_ptr<kernels::Operators> operators_;
  DeviceBuffer hidden_;
  DeviceBuffer normed_;
  DeviceBuffer scratch_;
  DeviceBuffer logits_;
  PassPointers pointers_;
  StepRecorder steps_;  // last: it is bound to all of the above
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_LANE_H_
