// The CUDA backend as its users see it: opened at run time, through the operator interface alone.
#ifndef DELTAFILL_TESTS_GPU_BACKEND_FIXTURE_H_
#define DELTAFILL_TESTS_GPU_BACKEND_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/operators.h"
#include "tests/testing/random.h"

namespace deltafill::test {

// DELTAFILL_TEST_GPU=required makes a missing device a failure: where there must be one.
inline bool DeviceIsRequired() {
  const char* const value = std::getenv("DELTAFILL_TEST_GPU");
  return value != nullptr && std::string(value) == "required";
}

inline void Must(const kernels::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

// Memory of a backend; freed with its owner.
class BackendBuffer {
 public:
  BackendBuffer(kernels::Backend* backend, size_t bytes) : backend_(backend), bytes_(bytes) {
    Must(backend->Allocate(bytes, &memory_));
  }
  BackendBuffer(BackendBuffer&& other) noexcept
      : backend_(other.backend_),
        memory_(std::exchange(other.memory_, nullptr)),
        bytes_(other.bytes_) {}
  BackendBuffer(const BackendBuffer&) = delete;
  BackendBuffer& operator=(const BackendBuffer&) = delete;
  ~BackendBuffer() { backend_->Free(memory_); }

  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }
  size_t bytes() const { return bytes_; }

 private:
  kernels::Backend* backend_;
  void* memory_ = nullptr;
  size_t bytes_;
};

std::vector<uint16_t> ToBf16Bits(std::span<const float> values);
std::vector<float> FromBf16Bits(std::span<const uint16_t> bits);
// Normal values that bf16 holds exactly.
std::vector<float> Bf16Normal(Random* random, int64_t count, double scale = 1.0);

// One backend for all tests of a binary (weights of one shape are probed once), a lane a test.
class CudaBackendTest : public testing::Test {
 protected:
  void SetUp() override;

  template <typename T>
  BackendBuffer Upload(const std::vector<T>& values) {
    BackendBuffer buffer(backend_, values.size() * sizeof(T));
    Must(lane_->CopyFromHost(buffer.as<void>(), values.data(), buffer.bytes()));
    Must(lane_->Synchronize());
    return buffer;
  }
  BackendBuffer UploadBf16(const std::vector<float>& values) { return Upload(ToBf16Bits(values)); }

  template <typename T>
  std::vector<T> Read(const BackendBuffer& buffer) {
    std::vector<T> values(buffer.bytes() / sizeof(T));
    Must(lane_->CopyToHost(values.data(), buffer.as<void>(), values.size() * sizeof(T)));
    Must(lane_->Synchronize());
    return values;
  }
  std::vector<float> ReadBf16(const BackendBuffer& buffer) {
    return FromBf16Bits(Read<uint16_t>(buffer));
  }

  std::unique_ptr<kernels::Weight> NewWeight(const std::vector<float>& values, int64_t out,
                                             int64_t in) {
    std::unique_ptr<kernels::Weight> weight;
    Must(backend_->NewWeight(values.data(), kernels::DType::kF32, out, in, &weight));
    return weight;
  }

  kernels::Backend* backend_ = nullptr;
  std::unique_ptr<kernels::Operators> lane_;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_GPU_BACKEND_FIXTURE_H_
