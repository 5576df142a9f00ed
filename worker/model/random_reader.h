// Random weights by the rules of `model init`, without files: for benchmarks.
#ifndef DELTAFILL_WORKER_MODEL_RANDOM_READER_H_
#define DELTAFILL_WORKER_MODEL_RANDOM_READER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/model/config.h"
#include "worker/model/init_tensors.h"
#include "worker/model/load_progress.h"
#include "worker/model/vector_upload.h"
#include "worker/model/weight_reader.h"

namespace deltafill::worker {

// Never the fingerprint of a checkpoint, not even of one with the same values. Backends that make
// random weights have other values than those that take the host's, and other numerics ids.
ModelFingerprint RandomFingerprint(const ModelConfig& config, uint64_t seed);

// Matrices are made on the device where the backend does that, uniform and with the deviation that
// init gives them; everything else has the very values of a directory that init makes from the same
// seed. Host memory: one weight's bytes a calling thread.
class RandomReader final : public WeightReader {
 public:
  // Backend and progress outlive the reader.
  RandomReader(const ModelConfig& config, uint64_t seed, kernels::Backend& backend,
               LoadProgress& progress);

  absl::StatusOr<std::unique_ptr<kernels::Weight>> Matrix(const std::vector<MatrixName>& parts,
                                                          int64_t columns) override;
  absl::StatusOr<std::unique_ptr<kernels::LatentProjection>> LatentProjection(
      const std::string& name, const kernels::LatentShape& shape) override;
  absl::StatusOr<DeviceBuffer> Vector(const std::vector<VectorName>& parts) override;
  bool Has(const std::string& name) const override { return tensors_.count(name) > 0; }
  ModelFingerprint Fingerprint() const override { return fingerprint_; }

 private:
  // DATA_LOSS naming the tensor if it is not planned with so many elements.
  absl::StatusOr<const InitialTensor*> Find(const std::string& name, int64_t elements) const;
  // The values of init, one tensor after the other.
  std::vector<std::byte> HostBytes(const std::vector<const InitialTensor*>& tensors) const;

  const uint64_t seed_;
  const ModelFingerprint fingerprint_;
  std::map<std::string, InitialTensor> tensors_;
  kernels::Backend& backend_;
  LoadProgress& progress_;
  VectorUpload vectors_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_RANDOM_READER_H_
