// Every limit of the params of products and element-wise operators, checked without a device.
// kInvalidArgument names field and limit; kUnsupported names what the CUDA backend does not take.
#ifndef DELTAFILL_KERNELS_CUDA_CHECK_OPERATORS_H_
#define DELTAFILL_KERNELS_CUDA_CHECK_OPERATORS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/operators.h"

namespace deltafill::kernels::cuda {

inline constexpr int64_t kFeaturesMax = int64_t{1} << 24;
inline constexpr int64_t kRowsMax = int64_t{1} << 30;

Status CheckOptions(const BackendOptions& options);

// in_features must be a multiple of 8, so that rows are aligned to 16 bytes.
Status CheckWeight(const void* host_data, DType dtype, int64_t out_features, int64_t in_features);

// The weight's own features; its pointer is not read.
Status CheckMatMul(const MatMulParams& params, int64_t out_features, int64_t in_features);
Status CheckEmbedding(const EmbeddingParams& params, int64_t vocabulary, int64_t width);
Status CheckSwiGlu(const SwiGluParams& params);
// The features of gate_up's and gate's weight.
Status CheckMatMulSwiGlu(const MatMulSwiGluParams& params, int64_t out_features,
                         int64_t in_features);
Status CheckMatMulShortConv(const MatMulShortConvParams& params, int64_t out_features,
                            int64_t in_features);
Status CheckMatMulGatedNorm(const MatMulGatedNormParams& params, int64_t out_features,
                            int64_t in_features);
// Channels are a multiple of 8; rows are aligned to 16 bytes.
Status CheckShortConv(const ShortConvParams& params);
// Width is a multiple of 8, at most 8,192; rows are aligned to 16 bytes.
Status CheckRmsNorm(const RmsNormParams& params);

// A copy or fill of `bytes`: pointers may be null only for zero bytes.
Status CheckCopy(const void* to, const void* from, size_t bytes);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_CHECK_OPERATORS_H_
