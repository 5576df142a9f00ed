// Exponentials are powers of two on the device: e^x = 2^(x log2 e).
#ifndef DELTAFILL_KERNELS_CUDA_LOG2E_H_
#define DELTAFILL_KERNELS_CUDA_LOG2E_H_

namespace deltafill::kernels::cuda {

inline constexpr float kLog2E = 1.44269504088896341f;

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_LOG2E_H_
