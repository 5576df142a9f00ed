// The portable path: two kernels a wave, in instructions that every card from sm_80 on has. A wave
// is a window of blocks of a window of items (an item is one value head of one sequence); its
// slots live in a workspace of bounded size.
#ifndef DELTAFILL_KERNELS_CUDA_PORTABLE_KERNELS_H_
#define DELTAFILL_KERNELS_CUDA_PORTABLE_KERNELS_H_

#include <cuda_runtime.h>

#include "kernels/cuda/device_params.h"

namespace deltafill::kernels::cuda {

struct PortableWave {
  int64_t first_item = 0;  // item = sequence * value_heads + value head
  int64_t items = 0;
  int64_t first_block = 0;
  int64_t blocks = 0;
};

struct PortablePrepareParams {
  BlockInputs in;
  PortableWave wave;
  const SequenceSpan* sequences = nullptr;
  int value_heads = 0;
  uint8_t* slots = nullptr;     // [blocks, items]
  float* exact_rows = nullptr;  // [CTAs, 3, 64, K]
};

struct PortableChainParams {
  ChainInputs in;
  PortableWave wave;
  const uint8_t* slots = nullptr;
  float* carried = nullptr;  // [items, V, K]: states between the waves of one window of items
  int slice = 0;             // columns of V a CTA, 16 to 64
  int stages = 1;            // slots in shared memory: 1 or 2
};

template <int K>
cudaError_t LaunchPortablePrepare(const PortablePrepareParams& params, int ctas,
                                  cudaStream_t stream);
template <int K>
cudaError_t LaunchPortableChain(const PortableChainParams& params, cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PORTABLE_KERNELS_H_
