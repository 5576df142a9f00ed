// Moves a checkpoint's tensors into a backend's memory, checking name, dtype and shape.
#ifndef DELTAFILL_WORKER_MODEL_CHECKPOINT_READER_H_
#define DELTAFILL_WORKER_MODEL_CHECKPOINT_READER_H_

#include <memory>
#include <string>
#include <vector>

#include "worker/model/checkpoint.h"
#include "worker/model/load_progress.h"
#include "worker/model/vector_upload.h"
#include "worker/model/weight_reader.h"

namespace deltafill::worker {

// Errors name file and tensor. Host memory: one weight's bytes a calling thread, beside the file's
// own pages, which the system may drop.
class CheckpointReader final : public WeightReader {
 public:
  // All outlive the reader.
  CheckpointReader(const Checkpoint& checkpoint, const ModelFingerprint& fingerprint,
                   kernels::Backend& backend, LoadProgress& progress)
      : checkpoint_(checkpoint),
        fingerprint_(fingerprint),
        backend_(backend),
        progress_(progress),
        vectors_(&backend) {}

  absl::StatusOr<std::unique_ptr<kernels::Weight>> Matrix(const std::vector<MatrixName>& parts,
                                                          int64_t columns) override;
  absl::StatusOr<std::unique_ptr<kernels::LatentProjection>> LatentProjection(
      const std::string& name, const kernels::LatentShape& shape) override;
  absl::StatusOr<DeviceBuffer> Vector(const std::vector<VectorName>& parts) override;
  bool Has(const std::string& name) const override { return checkpoint_.tensors().count(name) > 0; }
  ModelFingerprint Fingerprint() const override { return fingerprint_; }

 private:
  absl::StatusOr<const CheckpointTensor*> GetChecked(const std::string& name,
                                                     const std::vector<int64_t>& dims) const;

  const Checkpoint& checkpoint_;
  const ModelFingerprint fingerprint_;
  kernels::Backend& backend_;
  LoadProgress& progress_;
  VectorUpload vectors_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_CHECKPOINT_READER_H_
