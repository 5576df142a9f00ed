#include "worker/model/model_sizes.h"

#include <mutex>

#include "worker/model/hybrid_model.h"
#include "worker/model/status_steps.h"
#include "worker/model/weight_reader.h"

namespace deltafill::worker {
namespace {

// Notes what is asked for and gives nothing.
class SizeReader final : public WeightReader {
 public:
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Matrix(const std::vector<MatrixName>& parts,
                                                          int64_t columns) override {
    int64_t rows = 0;
    for (const MatrixName& part : parts) rows += part.rows;
    Note(rows * columns, &sizes_.matrices);
    return std::unique_ptr<kernels::Weight>();
  }
  absl::StatusOr<std::unique_ptr<kernels::LatentProjection>> LatentProjection(
      const std::string&, const kernels::LatentShape& shape) override {
    Note(shape.ProjectionRows() * shape.rank, &sizes_.matrices);
    return std::unique_ptr<kernels::LatentProjection>();
  }
  absl::StatusOr<DeviceBuffer> Vector(const std::vector<VectorName>& parts) override {
    int64_t values = 0;
    for (const VectorName& part : parts) {
      int64_t count = 1;
      for (int64_t dim : part.dims) count *= dim;
      values += count;
    }
    Note(values, &sizes_.vectors);
    return DeviceBuffer();
  }
  bool Has(const std::string&) const override { return true; }
  ModelFingerprint Fingerprint() const override { return {}; }

  ModelSizes Take() { return std::move(sizes_); }

 private:
  void Note(int64_t count, std::vector<int64_t>* counts) {
    const std::lock_guard<std::mutex> lock(mutex_);
    counts->push_back(count);
  }

  std::mutex mutex_;
  ModelSizes sizes_;
};

}  // namespace

absl::StatusOr<ModelSizes> MeasureModel(const ModelConfig& config) {
  SizeReader reader;
  DELTAFILL_TRY_ASSIGN(model, HybridModel::Load(config, reader, nullptr));
  ModelSizes sizes = reader.Take();
  sizes.lane = model->LaneSizesOf(1);
  return sizes;
}

}  // namespace deltafill::worker
