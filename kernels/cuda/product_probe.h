// Gives a weight's products their algorithms: candidates from the library, each proved on the
// device to give a row the same bits in calls of other sizes and at other places before it is used.
#ifndef DELTAFILL_KERNELS_CUDA_PRODUCT_PROBE_H_
#define DELTAFILL_KERNELS_CUDA_PRODUCT_PROBE_H_

#include <array>
#include <vector>

#include "kernels/cuda/product.h"

namespace deltafill::kernels::cuda {

// By row class; a class without an algorithm of its own has the base's.
using PinnedClasses = std::array<PinnedAlgorithm, kRowClassCount>;

// What a product is made for.
struct ProductPurpose {
  const void* w = nullptr;  // on the device: the probe multiplies by the weight itself
  int64_t out_features = 0;
  int64_t in_features = 0;
  DType y_dtype = DType::kBF16;
};

// Allocates and frees up to about 500 MB of device memory. Depends on the device, the library and
// the shape; on the weight's values only if they are so regular that they hide a difference.
// kUnsupported if no candidate of the library passes. Waits for `stream`.
Status PinAlgorithms(const ProductLibrary& library, const ProductPurpose& purpose,
                     cudaStream_t stream, PinnedClasses* out);

// The kernels of the probe, over dense device rows; `word_bytes` is 2 or 4.
// Uniform bf16 in [-limit, limit), from the seed and each element's index.
cudaError_t FillUniform(void* x, int64_t elements, uint64_t seed, float limit, cudaStream_t stream);
// to = -from, by the sign bit of each word.
cudaError_t NegateWords(const void* from, void* to, int64_t words, int word_bytes,
                        cudaStream_t stream);
// Adds the number of rows x columns words that differ to *differences.
cudaError_t CountDifferences(const void* a, const void* b, int64_t rows, int64_t columns,
                             int64_t stride, int word_bytes, unsigned long long* differences,
                             cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PRODUCT_PROBE_H_
