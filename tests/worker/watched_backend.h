// The CPU backend, watched: what is made through it, and answers that the CPU's own does not give.
#ifndef DELTAFILL_TESTS_WORKER_WATCHED_BACKEND_H_
#define DELTAFILL_TESTS_WORKER_WATCHED_BACKEND_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/operators.h"
#include "tests/testing/random.h"
#include "tests/worker/model_fixture.h"

namespace deltafill::test {

class WatchedBackend final : public kernels::Backend {
 public:
  const std::string& numerics() const override { return cpu_->numerics(); }
  kernels::DType activation_dtype() const override { return cpu_->activation_dtype(); }
  bool is_host_memory() const override { return true; }
  kernels::Status NewOperators(int threads, std::unique_ptr<kernels::Operators>* out) override {
    return cpu_->NewOperators(threads, out);
  }
  kernels::Status Allocate(size_t bytes, void** out) override { return cpu_->Allocate(bytes, out); }
  void Free(void* buffer) override { cpu_->Free(buffer); }
  kernels::Status ReadMemory(kernels::MemoryReport* out) override {
    *out = memory;
    if (memory.total_bytes > 0) return {};
    return cpu_->ReadMemory(out);
  }
  kernels::Status NewWeight(const void* host_data, kernels::DType dtype, int64_t out_features,
                            int64_t in_features, std::unique_ptr<kernels::Weight>* out) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++host_weights;
    return cpu_->NewWeight(host_data, dtype, out_features, in_features, out);
  }
  kernels::Status NewRandomWeight(uint64_t seed, float limit, int64_t out_features,
                                  int64_t in_features,
                                  std::unique_ptr<kernels::Weight>* out) override {
    if (!makes_random_weights) {
      return cpu_->NewRandomWeight(seed, limit, out_features, in_features, out);
    }
    Random random(seed);
    const std::vector<float> values =
        random.UniformVector(out_features * in_features, -limit, limit);
    const std::lock_guard<std::mutex> lock(mutex_);
    random_seeds.insert(seed);
    first_seeds.emplace(std::make_pair(out_features, in_features), seed);
    ++random_weights;
    return cpu_->NewWeight(values.data(), kernels::DType::kF32, out_features, in_features, out);
  }
  kernels::Status NewLatentProjection(const void* host_data, kernels::DType dtype,
                                      const kernels::LatentShape& shape,
                                      std::unique_ptr<kernels::LatentProjection>* out) override {
    return cpu_->NewLatentProjection(host_data, dtype, shape, out);
  }

  kernels::MemoryReport memory;  // total 0: the backend has none to report
  bool makes_random_weights = false;
  int host_weights = 0;
  int random_weights = 0;
  std::set<uint64_t> random_seeds;
  std::map<std::pair<int64_t, int64_t>, uint64_t> first_seeds;  // of the shapes

 private:
  const std::shared_ptr<kernels::Backend> cpu_ = MakeCpuBackend();
  std::mutex mutex_;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_WORKER_WATCHED_BACKEND_H_
