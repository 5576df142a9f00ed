// Weights in device memory, and the algorithms that their products are pinned to.
#ifndef DELTAFILL_KERNELS_CUDA_WEIGHT_H_
#define DELTAFILL_KERNELS_CUDA_WEIGHT_H_

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cuda/product_probe.h"
#include "kernels/cuda/tensor_map.h"

namespace deltafill::kernels::cuda {

// The algorithms of one weight shape, for both dtypes of y.
class ProductSet {
 public:
  const PinnedClasses& For(DType y_dtype) const { return classes_[Index(y_dtype)]; }
  PinnedClasses& For(DType y_dtype) { return classes_[Index(y_dtype)]; }

 private:
  static size_t Index(DType y_dtype) { return y_dtype == DType::kF32 ? 1 : 0; }
  std::array<PinnedClasses, 2> classes_;
};

// Pins each weight shape once; weights of one shape share what was found. Thread-safe; one probe
// at a time.
class ProductSets {
 public:
  explicit ProductSets(const ProductLibrary* library) : library_(library) {}

  Status Get(const void* w, int64_t out_features, int64_t in_features, cudaStream_t stream,
             std::shared_ptr<const ProductSet>* out);
  // Of all shapes so far.
  std::vector<ProductChoice> choices() const;

 private:
  const ProductLibrary* const library_;
  mutable std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, std::shared_ptr<const ProductSet>> sets_;  // by mutex_
};

// bf16 [out, in], dense.
class CudaWeight final : public Weight {
 public:
  CudaWeight(int64_t out_features, int64_t in_features)
      : out_features_(out_features), in_features_(in_features) {}

  int64_t out_features() const override { return out_features_; }
  int64_t in_features() const override { return in_features_; }
  const void* rows() const { return memory_.as<void>(); }
  void* rows_to_fill() { return memory_.as<void>(); }
  size_t bytes() const { return static_cast<size_t>(out_features_ * in_features_) * 2; }
  const ProductSet& products() const { return *products_; }
  const TensorMap* step_boxes() const { return &step_boxes_; }
  TensorMap* step_boxes_to_fill() { return &step_boxes_; }

  Status Reserve(cudaStream_t stream) { return memory_.Reserve(bytes(), stream); }
  void SetProducts(std::shared_ptr<const ProductSet> products) { products_ = std::move(products); }

 private:
  const int64_t out_features_;
  const int64_t in_features_;
  DeviceBuffer memory_;
  TensorMap step_boxes_ = {};  // on Hopper
  std::shared_ptr<const ProductSet> products_;
};

// `out` is set if the weight is of this backend; kInvalidArgument naming `field` otherwise.
Status AsCudaWeight(const char* field, const Weight* weight, const CudaWeight** out);

// Moves host tensors to the device, as bf16, through two page-locked pieces of its own. Used by one
// thread at a time.
class WeightUpload {
 public:
  Status Create() { return stream_.Create(); }
  cudaStream_t stream() const { return stream_.get(); }
  // Complete when it returns.
  Status Copy(const void* host, DType dtype, int64_t elements, void* device_to);

 private:
  Stream stream_;
  PinnedBuffer pieces_[2];
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_WEIGHT_H_
