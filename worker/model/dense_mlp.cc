#include "worker/model/dense_mlp.h"

#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

using kernels::MutableRows;

class DenseMlp final : public LayerMlp {
 public:
  explicit DenseMlp(int64_t intermediate) : intermediate_(intermediate) {}

  absl::Status Load(int64_t hidden, const std::string& prefix, WeightReader& reader) {
    DELTAFILL_TRY_ASSIGN(gate_up, reader.Matrix({{prefix + "gate_proj.weight", intermediate_},
                                                 {prefix + "up_proj.weight", intermediate_}},
                                                hidden));
    gate_up_ = std::move(gate_up);
    DELTAFILL_TRY_ASSIGN(down,
                         reader.Matrix({{prefix + "down_proj.weight", hidden}}, intermediate_));
    down_ = std::move(down);
    return absl::OkStatus();
  }

  // Gate and up side by side, and the product of both on its own so that `down` reads whole panels
  // in place.
  int64_t ScratchWidth() const override { return 3 * intermediate_; }

  absl::Status Forward(const PassRows& rows) const override {
    const MutableRows gate_up = rows.Scratch(0, 2 * intermediate_);
    const MutableRows product = rows.Scratch(2 * intermediate_, intermediate_);
    DELTAFILL_TRY(rows.operators->MatMulSwiGlu({.gate_up = {.x = rows.normed,
                                                            .weight = gate_up_.get(),
                                                            .y = gate_up,
                                                            .rows = rows.rows,
                                                            .step = rows.step},
                                                .y = product}));
    DELTAFILL_TRY(rows.operators->MatMul({.x = product,
                                          .weight = down_.get(),
                                          .y = rows.hidden,
                                          .rows = rows.rows,
                                          .accumulate = true,
                                          .step = rows.step}));
    return absl::OkStatus();
  }

 private:
  const int64_t intermediate_;
  std::unique_ptr<kernels::Weight> gate_up_;  // [2 x intermediate, hidden]
  std::unique_ptr<kernels::Weight> down_;     // [hidden, intermediate]
};

}  // namespace

absl::StatusOr<std::unique_ptr<LayerMlp>> LoadDenseMlp(int64_t hidden, int64_t intermediate,
                                                       const std::string& prefix,
                                                       WeightReader& reader) {
  auto mlp = std::make_unique<DenseMlp>(intermediate);
  DELTAFILL_TRY(mlp->Load(hidden, prefix, reader));
  return mlp;
}

}  // namespace deltafill::worker
