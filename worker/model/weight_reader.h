// Where a model's weights come from while it is loaded: a checkpoint, a seed, or nothing but their
// sizes.
#ifndef DELTAFILL_WORKER_MODEL_WEIGHT_READER_H_
#define DELTAFILL_WORKER_MODEL_WEIGHT_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/operators.h"
#include "statestore/identity.h"
#include "worker/model/device_buffer.h"

namespace deltafill::worker {

// A matrix [rows, columns] by its public name.
struct MatrixName {
  std::string name;
  int64_t rows = 0;
};

// A vector, or a small tensor of any shape whose dims other than 1 are `dims`: A_log comes as [H]
// and [1, 1, H, 1], convolution weights as [C, 4] and [C, 1, 4].
struct VectorName {
  std::string name;
  std::vector<int64_t> dims;
};

// Thread-safe. Every error is DATA_LOSS naming the tensor and where it was looked for, or the
// backend's own.
class WeightReader {
 public:
  virtual ~WeightReader() = default;

  // Matrices [rows, columns] stacked into one weight, in order: several projections of the same
  // input become one product.
  virtual absl::StatusOr<std::unique_ptr<kernels::Weight>> Matrix(
      const std::vector<MatrixName>& parts, int64_t columns) = 0;

  // kv_b_proj [heads * (nope_dim + value_dim), rank] in the form that latent attention takes.
  virtual absl::StatusOr<std::unique_ptr<kernels::LatentProjection>> LatentProjection(
      const std::string& name, const kernels::LatentShape& shape) = 0;

  // One fp32 buffer of the named tensors one after the other.
  virtual absl::StatusOr<DeviceBuffer> Vector(const std::vector<VectorName>& parts) = 0;

  virtual bool Has(const std::string& name) const = 0;

  // Of the model whose weights these are; to be read when all have been.
  virtual ModelFingerprint Fingerprint() const = 0;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_WEIGHT_READER_H_
