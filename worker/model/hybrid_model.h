// A stack of layers of any kinds, as both families have it: embedding, pre-norm residual layers,
// final norm, logits.
#ifndef DELTAFILL_WORKER_MODEL_HYBRID_MODEL_H_
#define DELTAFILL_WORKER_MODEL_HYBRID_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/model/device_buffer.h"
#include "worker/model/lane.h"
#include "worker/model/layer.h"
#include "worker/model/model.h"
#include "worker/model/weight_reader.h"

namespace deltafill::worker {

// Immutable once loaded; passes of different lanes may run at once.
class HybridModel final : public Model {
 public:
  // Layers are read by several threads at once. The reader's errors. Without a backend there are
  // sizes to be asked for, and no pass can be run.
  static absl::StatusOr<std::unique_ptr<HybridModel>> Load(
      ModelConfig config, WeightReader& reader, std::shared_ptr<kernels::Backend> backend);

  LaneSizes LaneSizesOf(int64_t rows_max) const;

  const ModelConfig& config() const override { return config_; }
  const ModelFingerprint& fingerprint() const override { return fingerprint_; }
  const StateLayout& state_layout() const override { return layout_; }
  kernels::Backend& backend() const override { return *backend_; }

  absl::StatusOr<std::shared_ptr<Lane>> NewLane(int threads, int64_t rows_max) override;
  absl::Status Prefill(Lane& lane, std::span<const RangeWork> ranges) override;
  absl::Status LastLogits(Lane& lane, std::span<float> logits) override;
  absl::Status DecodeStep(Lane& lane, std::span<const DecodeRow> rows,
                          std::span<float> logits) override;

 private:
  struct Layer {
    DeviceBuffer mixer_norm;  // [hidden]
    DeviceBuffer mlp_norm;    // [hidden]
    std::unique_ptr<SequenceMixer> mixer;
    std::unique_ptr<LayerMlp> mlp;
  };

  HybridModel(ModelConfig config, std::shared_ptr<kernels::Backend> backend);

  absl::Status LoadWeights(WeightReader& reader);
  absl::Status LoadLayers(WeightReader& reader);
  absl::StatusOr<Layer> LoadLayer(uint32_t index, WeightReader& reader) const;
  absl::StatusOr<std::unique_ptr<LayerMlp>> LoadMlp(uint32_t index, WeightReader& reader) const;
  absl::Status CheckRanges(const Lane& lane, std::span<const RangeWork> ranges) const;
  absl::Status CheckToken(uint32_t token) const;
  absl::Status CheckDecode(const Lane& lane, std::span<const DecodeRow> sequences) const;
  absl::Status Embed(Lane& lane, const PassRows& rows) const;
  // rows.normed [first_out ...) = norm of rows.hidden [first_in ...).
  absl::Status Normalize(const PassRows& rows, const DeviceBuffer& weight, int64_t first_in,
                         int64_t first_out, int64_t count) const;
  absl::Status IssueStep(Lane& lane, const PassRows& rows,
                         std::span<const DecodeRow> sequences) const;
  absl::Status ComputeLogits(Lane& lane, const PassRows& rows, std::span<float> logits) const;

  std::shared_ptr<kernels::Backend> backend_;  // first: everything below lives in its memory
  const ModelConfig config_;
  const StateLayout layout_;
  ModelFingerprint fingerprint_;                  // set once all weights are read
  std::unique_ptr<kernels::Weight> embedding_;    // [vocabulary, hidden]
  std::unique_ptr<kernels::Weight> output_head_;  // [vocabulary, hidden]; nullptr: tied
  DeviceBuffer final_norm_;                       // [hidden]
  std::vector<Layer> layers_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_HYBRID_MODEL_H_
