// A backend whose lanes can be observed.
#ifndef DELTAFILL_TESTS_BENCH_OBSERVED_BACKEND_H_
#define DELTAFILL_TESTS_BENCH_OBSERVED_BACKEND_H_

#include <memory>
#include <string>
#include <utility>

#include "tests/bench/observed_operators.h"

namespace deltafill::test {

// All else is the other backend's. Every lane it makes is an ObservedOperators without observer.
class ObservedBackend final : public kernels::Backend {
 public:
  using Status = kernels::Status;

  explicit ObservedBackend(std::unique_ptr<kernels::Backend> backend)
      : backend_(std::move(backend)) {}

  const std::string& numerics() const override { return backend_->numerics(); }
  kernels::DType activation_dtype() const override { return backend_->activation_dtype(); }
  bool is_host_memory() const override { return backend_->is_host_memory(); }
  Status NewOperators(int threads, std::unique_ptr<kernels::Operators>* out) override {
    std::unique_ptr<kernels::Operators> lane;
    if (Status s = backend_->NewOperators(threads, &lane); !s.ok()) return s;
    *out = std::make_unique<ObservedOperators>(std::move(lane), nullptr);
    return {};
  }
  Status Allocate(size_t bytes, void** out) override { return backend_->Allocate(bytes, out); }
  void Free(void* buffer) override { backend_->Free(buffer); }
  Status AllocateHost(size_t bytes, void** out) override {
    return backend_->AllocateHost(bytes, out);
  }
  void FreeHost(void* buffer) override { backend_->FreeHost(buffer); }
  Status ReadMemory(kernels::MemoryReport* out) override { return backend_->ReadMemory(out); }
  Status NewWeight(const void* host_data, kernels::DType dtype, int64_t out_features,
                   int64_t in_features, std::unique_ptr<kernels::Weight>* out) override {
    return backend_->NewWeight(host_data, dtype, out_features, in_features, out);
  }
  Status NewRandomWeight(uint64_t seed, float limit, int64_t out_features, int64_t in_features,
                         std::unique_ptr<kernels::Weight>* out) override {
    return backend_->NewRandomWeight(seed, limit, out_features, in_features, out);
  }
  Status NewLatentProjection(const void* host_data, kernels::DType dtype,
                             const kernels::LatentShape& shape,
                             std::unique_ptr<kernels::LatentProjection>* out) override {
    return backend_->NewLatentProjection(host_data, dtype, shape, out);
  }

 private:
  const std::unique_ptr<kernels::Backend> backend_;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_BENCH_OBSERVED_BACKEND_H_
