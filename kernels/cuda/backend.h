// The CUDA backend: one device, its weights and lanes.
#ifndef DELTAFILL_KERNELS_CUDA_BACKEND_H_
#define DELTAFILL_KERNELS_CUDA_BACKEND_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cuda/operators.h"
#include "kernels/cuda/weight.h"

namespace deltafill::kernels::cuda {

// Thread-safe, but numerics() is read once the weights are made. Lanes and weights may outlive it.
class CudaBackend final : public Backend {
 public:
  // kUnsupported where there is no device of compute capability 8.0 or later.
  static Status Open(const BackendOptions& options, std::unique_ptr<Backend>* out);

  const std::string& numerics() const override { return numerics_; }
  DType activation_dtype() const override { return DType::kBF16; }
  bool is_host_memory() const override { return false; }

  Status NewOperators(int threads, std::unique_ptr<Operators>* out) override;
  Status ReserveMemory(size_t bytes) override;
  Status Allocate(size_t bytes, void** out) override;
  void Free(void* buffer) override;
  Status AllocateHost(size_t bytes, void** out) override;
  void FreeHost(void* buffer) override;
  Status CheckDevice() override;
  Status ReadMemory(MemoryReport* out) override;

  // The first weight of a shape waits for a probe of its products (weight.h).
  Status NewWeight(const void* host_data, DType dtype, int64_t out_features, int64_t in_features,
                   std::unique_ptr<Weight>* out) override;
  Status NewRandomWeight(uint64_t seed, float limit, int64_t out_features, int64_t in_features,
                         std::unique_ptr<Weight>* out) override;
  Status NewLatentProjection(const void* host_data, DType dtype, const LatentShape& shape,
                             std::unique_ptr<LatentProjection>* out) override;

 private:
  CudaBackend() : device_(std::make_shared<CudaDevice>()), products_(&device_->library) {}

  Status Enter() const;
  Status OpenPool();
  Status HeldBytes(size_t* out) const;
  // A weight whose rows `fill` writes, complete when it returns.
  template <typename Fill>
  Status MakeWeight(int64_t out_features, int64_t in_features, Fill fill,
                    std::unique_ptr<Weight>* out);
  Status TakeUpload(std::unique_ptr<WeightUpload>* out);
  void GiveUpload(std::unique_ptr<WeightUpload> upload);
  void NameNumerics();

  const std::shared_ptr<CudaDevice> device_;
  cudaMemPool_t pool_ = nullptr;  // the device's own; keeps what it has taken
  Stream idle_;                   // has no work but the pool's
  ProductSets products_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<WeightUpload>> uploads_;  // idle ones, by mutex_
  std::string numerics_;                                // written under mutex_
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_BACKEND_H_
