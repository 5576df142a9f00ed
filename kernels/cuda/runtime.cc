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

Status AllocationFailed(const Status& failure, size_t bytes) {
  (void)cudaGetLastError();  // a failed allocation leaves nothing behind
  return {failure.code(), failure.message() + " (" + std::to_string(bytes) + " bytes)"};
}

Status SelectDevice(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    const std::string why = error == cudaSuccess ? "the driver lists none"
                                                 : FromCuda(error, "cudaGetDeviceCount").message();
    return {StatusCode::kUnsupported, "no CUDA device: " + why};
  }
  if (device < 0 || device >= count) {
    return InvalidArgument("device: " + std::to_string(device) + " is not in [0, " +
                           std::to_string(count) + "), the CUDA devices that are visible");
  }
  return FromCuda(cudaSetDevice(device), "cudaSetDevice");
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
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (Status s = FromCuda(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
      !s.ok()) {
    return s;
  }
  if (capture != cudaStreamCaptureStatusNone) {
    return {StatusCode::kUnsupported, "workspace: has to grow, which cannot be recorded"};
  }
  if (memory_) {
    if (Status s = FromCuda(cudaFreeAsync(memory_, stream), "cudaFreeAsync"); !s.ok()) return s;
    memory_ = nullptr;
    bytes_ = 0;
  }
  if (Status s = FromCuda(cudaMallocAsync(&memory_, bytes, stream), "cudaMallocAsync"); !s.ok()) {
    memory_ = nullptr;
    return AllocationFailed(s, bytes);
  }
  bytes_ = bytes;
  return {};
}

Stream::~Stream() {
  if (stream_) (void)cudaStreamDestroy(stream_);
}

Status Stream::Create() {
  return FromCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}

Status Stream::Synchronize() const {
  return FromCuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

PinnedBuffer::~PinnedBuffer() {
  if (read_) {
    (void)cudaEventSynchronize(read_);
    (void)cudaEventDestroy(read_);
  }
  if (memory_) (void)cudaFreeHost(memory_);
}

Status PinnedBuffer::Acquire(size_t bytes) {
  if (read_ == nullptr) {
    const Status s =
        FromCuda(cudaEventCreateWithFlags(&read_, cudaEventDisableTiming), "cudaEventCreate");
    if (!s.ok()) return s;
  }
  if (Status s = FromCuda(cudaEventSynchronize(read_), "cudaEventSynchronize"); !s.ok()) return s;
  if (bytes <= bytes_) return {};
  if (memory_) (void)cudaFreeHost(memory_);
  memory_ = nullptr;
  bytes_ = 0;
  if (Status s = FromCuda(cudaMallocHost(&memory_, bytes), "cudaMallocHost"); !s.ok()) {
    memory_ = nullptr;
    return AllocationFailed(s, bytes);
  }
  bytes_ = bytes;
  return {};
}

Status PinnedBuffer::CopyTo(void* device_to, size_t bytes, cudaStream_t stream) {
  if (Status s =
          FromCuda(cudaMemcpyAsync(device_to, memory_, bytes, cudaMemcpyHostToDevice, stream),
                   "cudaMemcpyAsync");
      !s.ok()) {
    return s;
  }
  return FromCuda(cudaEventRecord(read_, stream), "cudaEventRecord");
}

}  // namespace deltafill::kernels::cuda
