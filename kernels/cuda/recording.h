// A CUDA graph of a lane's calls, and the tokens that it starts from.
#ifndef DELTAFILL_KERNELS_CUDA_RECORDING_H_
#define DELTAFILL_KERNELS_CUDA_RECORDING_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/runtime.h"
#include "kernels/operators.h"

namespace deltafill::kernels::cuda {

// Used by its lane's thread.
class CudaRecording final : public Recording {
 public:
  static constexpr size_t kTokensMax = 4096;

  CudaRecording() = default;
  ~CudaRecording() override;

  // Allocates before the capture, then captures what is issued on `stream`.
  Status Begin(cudaStream_t stream);
  // Ends the capture whatever has happened, and makes the graph executable.
  Status End(cudaStream_t stream);
  // Captures the copy of `count` tokens that Replay will be given.
  Status CaptureTokens(size_t count, void* device_to, cudaStream_t stream);
  Status Replay(std::span<const uint32_t> tokens, cudaStream_t stream);

 private:
  uint32_t* tokens_ = nullptr;  // page-locked: each replay reads it anew
  size_t token_count_ = 0;
  bool has_tokens_ = false;
  cudaEvent_t replayed_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_RECORDING_H_
