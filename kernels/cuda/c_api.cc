// The C ABI: how the static core opens the backend, and a kernel for callers that cannot include
// the headers (benchmarks in Python).
#include "kernels/cuda/c_api.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/forward.h"

extern "C" int deltafill_cuda_backend_open(const char* interface_id,
                                           const deltafill::kernels::BackendOptions* options,
                                           std::unique_ptr<deltafill::kernels::Backend>* out,
                                           char* message, int64_t message_size) {
  using namespace deltafill::kernels;
  Status status;
  if (std::strcmp(interface_id, cuda::kInterfaceId) != 0) {
    status = {StatusCode::kUnsupported,
              std::string("the library was built from other headers: it has interface ") +
                  cuda::kInterfaceId + ", the program " + interface_id};
  } else {
    status = cuda::CudaBackend::Open(*options, out);
  }
  std::snprintf(message, static_cast<size_t>(message_size), "%s", status.message().c_str());
  return static_cast<int>(status.code());
}

// KDA forward over one packed batch: bf16 contiguous rows q, k, v, f [rows, heads*128], beta
// [rows, heads] (a logit), fp32 a_log [heads], dt_bias [heads*128] or null; o like v;
// final_states fp32 [sequences, heads, 128, 128] or null. offsets: host [sequences + 1]. Uses the
// lower-bound gate if lower_bound < 0, else softplus. Returns 0, or 1 with the reason in `message`.
// One call at a time: the workspace is shared.
extern "C" int deltafill_cuda_kda_forward(const void* q, const void* k, const void* v,
                                          const void* f, const void* beta, const float* a_log,
                                          const float* dt_bias, void* o, float* final_states,
                                          const int64_t* offsets, int64_t sequences, int heads,
                                          float lower_bound, void* stream, char* message,
                                          int64_t message_size) {
  using namespace deltafill::kernels;
  static cuda::ForwardWorkspace workspace;
  const int64_t width = int64_t{heads} * 128;
  DeltaRuleForwardParams params;
  params.shape.heads = params.shape.value_heads = heads;
  params.shape.key_dim = params.shape.value_dim = 128;
  params.shape.gate = lower_bound < 0 ? GateKind::kChannelLowerBound : GateKind::kChannelSoftplus;
  if (lower_bound < 0) params.shape.lower_bound = lower_bound;
  params.in = {{q, DType::kBF16, width},
               {k, DType::kBF16, width},
               {v, DType::kBF16, width},
               {f, DType::kBF16, width},
               {beta, DType::kBF16, heads},
               a_log,
               dt_bias};
  params.offsets = {offsets, static_cast<size_t>(sequences) + 1};
  params.o = {o, DType::kBF16, width};
  std::vector<float*> finals;
  for (int64_t i = 0; final_states && i < sequences; ++i) {
    finals.push_back(final_states + i * width * 128);
  }
  if (final_states) params.final_states = finals.data();
  const Status status =
      cuda::DeltaRuleForward(params, {}, &workspace, static_cast<cudaStream_t>(stream));
  if (!status.ok()) std::snprintf(message, message_size, "%s", status.message().c_str());
  return status.ok() ? 0 : 1;
}
