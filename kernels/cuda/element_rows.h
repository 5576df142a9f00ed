// Element-wise kernels over bf16 rows; params are checked, pointers are device pointers.
#ifndef DELTAFILL_KERNELS_CUDA_ELEMENT_ROWS_H_
#define DELTAFILL_KERNELS_CUDA_ELEMENT_ROWS_H_

#include <cuda_runtime.h>

#include "kernels/operators.h"

namespace deltafill::kernels::cuda {

cudaError_t SwiGluRows(const SwiGluParams& params, cudaStream_t stream);

// y[i] = table[tokens[i]]; table bf16 [vocabulary, width], dense, width a multiple of 8.
cudaError_t GatherRows(const void* table, int64_t width, const uint32_t* tokens, int64_t count,
                       const MutableRows& y, cudaStream_t stream);

// y = bias or y += bias, rounded to y's dtype: what a product with bias then adds its sums to. A
// bias that is bf16 in the checkpoint stays exact.
cudaError_t StartWithBias(const float* bias, const MutableRows& y, int64_t rows, int64_t width,
                          bool accumulate, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_ELEMENT_ROWS_H_
