// Launches of kernels in clusters of CTAs, and of those that follow each other quickly: where the
// card can, such a kernel starts while the one before it on the stream still runs, so that its
// launch and what it reads of weights cost no time of their own.
#ifndef DELTAFILL_KERNELS_CUDA_LAUNCH_CUH_
#define DELTAFILL_KERNELS_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <cstddef>

namespace deltafill::kernels::cuda {

// Threads of a kernel that LaunchOverlapped launches call it before they read or write anything but
// what no kernel writes; in each CTA some do. Returns once all earlier kernels of the stream have
// ended.
__device__ __forceinline__ void WaitForEarlierKernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may start as soon as all CTAs of this one have called it or ended.
__device__ __forceinline__ void LetNextKernelStart() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ void PrefetchToL2(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}
__device__ __forceinline__ void PrefetchToL1(const void* at) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(at));
}

// Whether the current device runs the code above as written for 9.0: later cards run what was
// compiled for 8.0, which does not wait.
inline bool LaunchesOverlap() {
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major == 9;
}

struct LaunchShape {
  dim3 grid;
  dim3 threads;
  size_t shared_bytes = 0;
  int cluster = 1;  // CTAs that share a part of the grid's x
};

// After everything before it on the stream, with as much shared memory as the shape says.
template <typename... Params>
cudaError_t LaunchClusters(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream,
                           const Params&... params) {
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, params...);
}

template <typename... Params>
cudaError_t LaunchOverlapped(void (*kernel)(Params...), const LaunchShape& shape,
                             cudaStream_t stream, const Params&... params) {
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (LaunchesOverlap()) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  return cudaLaunchKernelEx(&config, kernel, params...);
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_LAUNCH_CUH_
