// Routing of a mixture of experts on a CUDA device: scores, choice, places, and the rows on their
// way to the experts and back. Nothing here depends on the order in which threads run: an expert's
// rows ascend, and a row's sum ascends over its experts. Any card from sm_80 on.
#ifndef DELTAFILL_KERNELS_CUDA_MIXTURE_ROUTING_H_
#define DELTAFILL_KERNELS_CUDA_MIXTURE_ROUTING_H_

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/grouped_tiles.h"
#include "kernels/mixture_of_experts.h"

namespace deltafill::kernels::cuda {

// One pass. Arrays as in MixtureLayout.
struct MixtureRouting {
  MixtureShape shape;
  const __nv_bfloat16* x = nullptr;
  int64_t x_stride = 0;
  __nv_bfloat16* y = nullptr;
  int64_t y_stride = 0;
  int rows = 0;
  const float* router = nullptr;
  const float* correction_bias = nullptr;  // or nullptr
  float* logits = nullptr;
  int32_t* experts = nullptr;  // ascending in a row
  float* weights = nullptr;
  int32_t* slots = nullptr;  // places among the packed rows
  int32_t* counts =
      nullptr;               // rows a choosing CTA sends to an expert, then those of CTAs before it
  int32_t* begin = nullptr;  // an expert's first packed row
  TokenTile* tiles = nullptr;
  GroupedWork* work = nullptr;
  __nv_bfloat16* packed = nullptr;  // [rows * top_k, hidden]: rows for experts, then their outputs
};

// logits = x router^T in fp32, each a sum of products in an order that the shape alone fixes.
// `step`: for a decoding step's few rows, with bits of their own.
cudaError_t LaunchRouterLogits(const MixtureRouting& routing, bool step, cudaStream_t stream);
// experts, weights, counts, and in slots each row's rank among those of its CTA and expert.
cudaError_t LaunchChooseExperts(const MixtureRouting& routing, cudaStream_t stream);
// counts to sums of those before; begin, tiles, work.
cudaError_t LaunchPlaceExperts(const MixtureRouting& routing, cudaStream_t stream);
// slots, and packed rows from x.
cudaError_t LaunchPackRows(const MixtureRouting& routing, cudaStream_t stream);
// y += weighted packed rows.
cudaError_t LaunchCombineRows(const MixtureRouting& routing, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_MIXTURE_ROUTING_H_
