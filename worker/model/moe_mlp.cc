#include "worker/model/moe_mlp.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/model/dense_mlp.h"
#include "worker/model/parallel_steps.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

struct OwnedExpert {
  std::unique_ptr<kernels::Weight> gate_up;  // [2 x width, hidden]
  std::unique_ptr<kernels::Weight> down;     // [hidden, width]
};

class MoeMlp final : public LayerMlp {
 public:
  explicit MoeMlp(const ModelConfig& config) {
    shape_.experts = static_cast<int>(config.experts.count);
    shape_.top_k = static_cast<int>(config.experts.per_token);
    shape_.hidden = config.hidden_size;
    shape_.expert_width = config.experts.width;
    shape_.renormalize = config.experts.renormalize;
    shape_.biased_weights = config.experts.biased_weights;
    shape_.routed_scale = static_cast<float>(config.experts.routed_scale);
  }

  absl::Status Load(int64_t shared_experts, const std::string& prefix, WeightReader& reader);

  int64_t ScratchWidth() const override { return shared_ == nullptr ? 0 : shared_->ScratchWidth(); }

  absl::Status Forward(const PassRows& rows) const override {
    DELTAFILL_TRY(rows.operators->MixtureOfExperts({.shape = shape_,
                                                    .x = rows.normed,
                                                    .router = router_.floats(),
                                                    .correction_bias = correction_bias_.floats(),
                                                    .experts = experts_,
                                                    .y = rows.hidden,
                                                    .rows = rows.rows,
                                                    .step = rows.step}));
    return shared_ == nullptr ? absl::OkStatus() : shared_->Forward(rows);
  }

 private:
  absl::Status LoadExpert(const std::string& prefix, WeightReader& reader,
                          OwnedExpert* expert) const;

  kernels::MixtureShape shape_;
  DeviceBuffer router_;           // [experts, hidden]
  DeviceBuffer correction_bias_;  // [experts]
  std::vector<OwnedExpert> owned_;
  std::vector<kernels::ExpertWeights> experts_;  // of owned_
  std::unique_ptr<LayerMlp> shared_;             // nullptr: there are none
};

absl::Status MoeMlp::LoadExpert(const std::string& prefix, WeightReader& reader,
                                OwnedExpert* expert) const {
  DELTAFILL_TRY_ASSIGN(gate_up, reader.Matrix({{prefix + "w1.weight", shape_.expert_width},
                                               {prefix + "w3.weight", shape_.expert_width}},
                                              shape_.hidden));
  expert->gate_up = std::move(gate_up);
  DELTAFILL_TRY_ASSIGN(down,
                       reader.Matrix({{prefix + "w2.weight", shape_.hidden}}, shape_.expert_width));
  expert->down = std::move(down);
  return absl::OkStatus();
}

absl::Status MoeMlp::Load(int64_t shared_experts, const std::string& prefix, WeightReader& reader) {
  DELTAFILL_TRY_ASSIGN(router,
                       reader.Vector({{prefix + "gate.weight", {shape_.experts, shape_.hidden}}}));
  router_ = std::move(router);
  DELTAFILL_TRY_ASSIGN(
      bias, reader.Vector({{prefix + "gate.e_score_correction_bias", {shape_.experts}}}));
  correction_bias_ = std::move(bias);
  owned_.resize(static_cast<size_t>(shape_.experts));
  const auto load = [&](int64_t index) {
    return LoadExpert(absl::StrCat(prefix, "experts.", index, "."), reader,
                      &owned_[static_cast<size_t>(index)]);
  };
  DELTAFILL_TRY(load(0));  // alone, as the first layer of a kind
  DELTAFILL_TRY(RunParallelSteps(shape_.experts - 1, [&](int64_t step) { return load(step + 1); }));
  for (const OwnedExpert& expert : owned_) {
    experts_.push_back({.gate_up = expert.gate_up.get(), .down = expert.down.get()});
  }
  if (shared_experts == 0) return absl::OkStatus();
  DELTAFILL_TRY_ASSIGN(shared, LoadDenseMlp(shape_.hidden, shared_experts * shape_.expert_width,
                                            prefix + "shared_experts.", reader));
  shared_ = std::move(shared);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LayerMlp>> LoadMoeMlp(const ModelConfig& config,
                                                     const std::string& prefix,
                                                     WeightReader& reader) {
  auto mlp = std::make_unique<MoeMlp>(config);
  DELTAFILL_TRY(mlp->Load(config.experts.shared, prefix, reader));
  return mlp;
}

}  // namespace deltafill::worker
