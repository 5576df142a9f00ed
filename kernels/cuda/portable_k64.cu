#include "kernels/cuda/portable_chain.cuh"
#include "kernels/cuda/portable_prepare.cuh"

namespace deltafill::kernels::cuda {

template cudaError_t LaunchPortablePrepare<64>(const PortablePrepareParams&, int, cudaStream_t);
template cudaError_t LaunchPortableChain<64>(const PortableChainParams&, cudaStream_t);

}  // namespace deltafill::kernels::cuda
