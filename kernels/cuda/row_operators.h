// Row operators on a CUDA device: short convolution with SiLU, RMSNorm, gated RMSNorm. bf16 rows,
// fp32 arithmetic; pointers in the params are device pointers, arrays marked host are read before
// a call returns.
#ifndef DELTAFILL_KERNELS_CUDA_ROW_OPERATORS_H_
#define DELTAFILL_KERNELS_CUDA_ROW_OPERATORS_H_

#include <cuda_runtime.h>

#include "kernels/cuda/runtime.h"
#include "kernels/operators.h"
#include "kernels/status.h"

namespace deltafill::kernels::cuda {

// Sequences whose places travel with the launch.
inline constexpr int kShortConvInlineSequences = 64;

// `descriptions` holds the sequences' places on the device where they are many. Channels are a
// multiple of 8; rows are aligned to 16 bytes.
Status ShortConv(const ShortConvParams& params, DeviceBuffer* descriptions, cudaStream_t stream);
// The first three rows of each sequence alone: those that tails_in shows in. Writes no tails_out.
Status ShortConvHeads(const ShortConvParams& params, DeviceBuffer* descriptions,
                      cudaStream_t stream);
Status ConvTail(const ConvTailParams& params, cudaStream_t stream);

Status RmsNorm(const RmsNormParams& params, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_ROW_OPERATORS_H_
