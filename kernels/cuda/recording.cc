#include "kernels/cuda/recording.h"

#include <algorithm>
#include <string>

namespace deltafill::kernels::cuda {

CudaRecording::~CudaRecording() {
  if (replayed_) {
    (void)cudaEventSynchronize(replayed_);
    (void)cudaEventDestroy(replayed_);
  }
  if (graph_) (void)cudaGraphExecDestroy(graph_);
  if (tokens_) (void)cudaFreeHost(tokens_);
}

Status CudaRecording::Begin(cudaStream_t stream) {
  void* tokens = nullptr;
  if (Status s = FromCuda(cudaMallocHost(&tokens, kTokensMax * sizeof(uint32_t)), "cudaMallocHost");
      !s.ok()) {
    return s;
  }
  tokens_ = static_cast<uint32_t*>(tokens);
  const cudaError_t event = cudaEventCreateWithFlags(&replayed_, cudaEventDisableTiming);
  if (Status s = FromCuda(event, "cudaEventCreate"); !s.ok()) return s;
  return FromCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                  "cudaStreamBeginCapture");
}

Status CudaRecording::End(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  Status status = FromCuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  if (status.ok()) {
    status = FromCuda(cudaGraphInstantiate(&graph_, graph, 0), "cudaGraphInstantiate");
  } else {
    (void)cudaGetLastError();  // a spoilt capture leaves the stream as it was
  }
  if (graph) (void)cudaGraphDestroy(graph);
  return status;
}

Status CudaRecording::CaptureTokens(size_t count, void* device_to, cudaStream_t stream) {
  if (has_tokens_) return InvalidArgument("recording: has an Embedding already");
  if (count > kTokensMax) {
    return {StatusCode::kUnsupported, "recording: " + std::to_string(count) +
                                          " tokens are more than " + std::to_string(kTokensMax)};
  }
  has_tokens_ = true;
  token_count_ = count;
  return FromCuda(
      cudaMemcpyAsync(device_to, tokens_, count * sizeof(uint32_t), cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");
}

Status CudaRecording::Replay(std::span<const uint32_t> tokens, cudaStream_t stream) {
  if (tokens.size() != token_count_) {
    return InvalidArgument("tokens.size(): " + std::to_string(tokens.size()) + " is not the " +
                           std::to_string(token_count_) + " of the recording");
  }
  // The replay before may still have to read its tokens.
  if (Status s = FromCuda(cudaEventSynchronize(replayed_), "cudaEventSynchronize"); !s.ok()) {
    return s;
  }
  std::copy(tokens.begin(), tokens.end(), tokens_);
  if (Status s = FromCuda(cudaGraphLaunch(graph_, stream), "cudaGraphLaunch"); !s.ok()) return s;
  return FromCuda(cudaEventRecord(replayed_, stream), "cudaEventRecord");
}

}  // namespace deltafill::kernels::cuda
