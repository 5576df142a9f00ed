// Moves a checkpoint's tensors into a backend's memory, checking name, dtype and shape.
#ifndef DELTAFILL_WORKER_MODEL_WEIGHT_READER_H_
#define DELTAFILL_WORKER_MODEL_WEIGHT_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/operators.h"
#include "worker/model/checkpoint.h"
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

// Used while loading. Matrix, LatentProjection and Has may be called by several threads at once,
// Vector by one. Every error is DATA_LOSS naming file and tensor, or the backend's own.
class WeightReader {
 public:
  // All outlive the reader. `operators` carries the copies.
  WeightReader(const Checkpoint& checkpoint, kernels::Backend& backend,
               kernels::Operators& operators)
      : checkpoint_(checkpoint), backend_(backend), operators_(operators) {}

  // Matrices [rows, columns] stacked into one weight, in order: several projections of the same
  // input become one product.
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Matrix(const std::vector<MatrixName>& parts,
                                                          int64_t columns) const;

  // kv_b_proj [heads * (nope_dim + value_dim), rank] in the form that latent attention takes.
  absl::StatusOr<std::unique_ptr<kernels::LatentProjection>> LatentProjection(
      const std::string& name, const kernels::LatentShape& shape) const;

  // One fp32 buffer of the named tensors one after the other.
  absl::StatusOr<DeviceBuffer> Vector(const std::vector<VectorName>& parts);

  bool Has(const std::string& name) const { return checkpoint_.tensors().count(name) > 0; }

 private:
  absl::StatusOr<const CheckpointTensor*> GetChecked(const std::string& name,
                                                     const std::vector<int64_t>& dims) const;

  const Checkpoint& checkpoint_;
  kernels::Backend& backend_;
  kernels::Operators& operators_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_WEIGHT_READER_H_
