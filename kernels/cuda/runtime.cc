#include "kernels/cuda/runtime.h"

#include <string>

namespace deltafill::kernels::cuda {

Status FromCuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  const StatusCode code =
      error == cudaErrorMemoryAllocation ? StatusCode::kResourceExhausted : StatusCode::kInternal;
  return {code,
          std::string(call) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error)};
}

Status ReadDeviceTraits(DeviceTraits* traits) {
  int device = 0;
  if (Status s = FromCuda(cudaGetDevice(&device), "cudaGetDevice"); !s.ok()) return s;
  const auto read = [&](cudaDeviceAttr attribute, int* value) {
    return FromCuda(cudaDeviceGetAttribute(value, attribute, device), "cudaDeviceGetAttribute");
  };
  if (Status s = read(cudaDevAttrComputeCapabilityMajor, &traits->major); !s.ok()) return s;
  if (Status s = read(cudaDevAttrComputeCapabilityMinor, &traits->minor); !s.ok()) return s;
  if (Status s = read(cudaDevAttrMultiProcessorCount, &traits->multiprocessors); !s.ok()) return s;
  return read(cudaDevAttrMaxSharedMemoryPerBlockOptin, &traits->shared_bytes_per_cta);
}

DeviceBuffer::~DeviceBuffer() {
  if (memory_) (void)cudaFree(memory_);
}

Status DeviceBuffer::Reserve(size_t bytes, cudaStream_t stream) {
  if (bytes <= bytes_) return {};
  if (memory_) {
    if (Status s = FromCuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); !s.ok()) {
      return s;
    }
    (void)cudaFree(memory_);
    memory_ = nullptr;
    bytes_ = 0;
  }
  if (Status s = FromCuda(cudaMalloc(&memory_, bytes), "cudaMalloc"); !s.ok()) {
    (void)cudaGetLastError();  // a failed allocation leaves nothing behind
    memory_ = nullptr;
    return {s.code(), s.message() + " (" + std::to_string(bytes) + " bytes)"};
  }
  bytes_ = bytes;
  return {};
}

}  // namespace deltafill::kernels::cuda
