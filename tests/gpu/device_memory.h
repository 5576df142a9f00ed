// Owning device memory for tests; any CUDA error fails the test at once by exception.
#ifndef DELTAFILL_TESTS_GPU_DEVICE_MEMORY_H_
#define DELTAFILL_TESTS_GPU_DEVICE_MEMORY_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace deltafill::test {

inline void CheckCuda(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) : bytes_(bytes) {
    CheckCuda(cudaMalloc(&memory_, bytes + 1));
    CheckCuda(cudaMemset(memory_, 0xFF, bytes));
  }
  template <typename T>
  explicit DeviceMemory(const std::vector<T>& values) : DeviceMemory(values.size() * sizeof(T)) {
    if (values.empty()) return;
    CheckCuda(cudaMemcpy(memory_, values.data(), bytes_, cudaMemcpyHostToDevice));
  }
  DeviceMemory(DeviceMemory&& other) noexcept : memory_(other.memory_), bytes_(other.bytes_) {
    other.memory_ = nullptr;
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { (void)cudaFree(memory_); }

  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }
  template <typename T>
  std::vector<T> Read() const {
    std::vector<T> values(bytes_ / sizeof(T));
    if (values.empty()) return values;
    CheckCuda(cudaMemcpy(values.data(), memory_, bytes_, cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

inline uint16_t Bf16Bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
}
inline float FromBf16Bits(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
}

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_GPU_DEVICE_MEMORY_H_
