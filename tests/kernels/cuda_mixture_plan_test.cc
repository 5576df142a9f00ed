// Checks and plans of the CUDA backend's mixture of experts, without a device.
#include "kernels/cuda/mixture_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "kernels/cuda/grouped_tiles.h"
#include "kernels/operators.h"

namespace deltafill::kernels::cuda {
namespace {

using testing::HasSubstr;

class SizedWeight final : public Weight {
 public:
  SizedWeight(int64_t out, int64_t in) : out_(out), in_(in) {}
  int64_t out_features() const override { return out_; }
  int64_t in_features() const override { return in_; }

 private:
  int64_t out_, in_;
};

struct Case {
  SizedWeight gate_up{2 * 16, 32}, down{32, 16};
  std::vector<ExpertWeights> experts = std::vector<ExpertWeights>(4, {&gate_up, &down});
  alignas(16) float router[4 * 32] = {};
  alignas(16) uint16_t rows[3 * 32] = {};
  MixtureParams params = {
      .shape = {.experts = 4, .top_k = 2, .hidden = 32, .expert_width = 16},
      .x = {rows, DType::kBF16, 32},
      .router = router,
      .experts = experts,
      .y = {rows, DType::kBF16, 32},
      .rows = 3,
  };
};

TEST(MixturePlanTest, ChecksNameFieldAndLimit) {
  const SizedWeight wrong(31, 32);
  const struct {
    std::function<void(Case*)> change;
    StatusCode code;
    const char* message;
  } cases[] = {
      {[](Case* c) { c->params.shape.experts = 0; }, StatusCode::kInvalidArgument, "[1, 1024]"},
      {[](Case* c) { c->params.shape.top_k = 5; }, StatusCode::kInvalidArgument, "shape.top_k: 5"},
      {[](Case* c) { c->params.shape.hidden = 36; }, StatusCode::kInvalidArgument,
       "shape.hidden: 36 is not a multiple of 8"},
      {[](Case* c) { c->params.shape.expert_width = 0; }, StatusCode::kInvalidArgument,
       "shape.expert_width: 0"},
      {[](Case* c) { c->params.shape.routed_scale = 1.0f / 0.0f; }, StatusCode::kInvalidArgument,
       "shape.routed_scale"},
      {[](Case* c) { c->params.router = nullptr; }, StatusCode::kInvalidArgument,
       "router: is null"},
      {[](Case* c) { ++c->params.router; }, StatusCode::kInvalidArgument, "router: is not aligned"},
      {[](Case* c) { c->params.correction_bias = c->router + 1; }, StatusCode::kInvalidArgument,
       "correction_bias"},
      {[](Case* c) { c->params.experts = {}; }, StatusCode::kInvalidArgument, "experts.size(): 0"},
      {[](Case* c) { c->experts[2].down = nullptr; }, StatusCode::kInvalidArgument,
       "experts[2].down: is null"},
      {[&](Case* c) { c->experts[1].gate_up = &wrong; }, StatusCode::kInvalidArgument,
       "experts[1].gate_up: is [31, 32], not [32, 32]"},
      {[](Case* c) { c->params.rows = -1; }, StatusCode::kInvalidArgument, "rows: -1"},
      {[](Case* c) { c->params.x.dtype = DType::kF32; }, StatusCode::kUnsupported, "x.dtype"},
      {[](Case* c) { c->params.x.row_stride = 24; }, StatusCode::kInvalidArgument, "x.row_stride"},
      {[](Case* c) { c->params.y.row_stride = 36; }, StatusCode::kInvalidArgument,
       "y.row_stride: 36 is not a multiple of 8"},
      {[](Case* c) { c->params.y.data = c->rows + 1; }, StatusCode::kInvalidArgument, "y.data"},
  };
  Case good;
  EXPECT_TRUE(CheckMixture(good.params).ok()) << CheckMixture(good.params).message();
  for (const auto& [change, code, message] : cases) {
    Case bad;
    change(&bad);
    const Status status = CheckMixture(bad.params);
    EXPECT_EQ(status.code(), code) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

TEST(MixturePlanTest, MoreExpertsARowThanKernelsServe) {
  Case c;
  c.experts.resize(40, c.experts[0]);
  c.params.experts = c.experts;
  c.params.shape.experts = 40;
  c.params.shape.top_k = 33;
  EXPECT_EQ(CheckMixture(c.params).code(), StatusCode::kUnsupported);
}

TEST(MixturePlanTest, PassesAreWholeChoosingGroups) {
  for (int top_k = 1; top_k <= kMixtureTopKMax; ++top_k) {
    MixtureShape shape = {.experts = 256, .top_k = top_k, .hidden = 64, .expert_width = 64};
    const int64_t rows = MixturePassRows(shape);
    EXPECT_EQ(rows % kMixtureChoosingRows, 0);
    EXPECT_LE(rows * top_k, kMixtureChoicesMax);
    EXPECT_GT((rows + kMixtureChoosingRows) * top_k, kMixtureChoicesMax);
  }
}

// The longest list: as many experts as can be end with a tile of one row.
TEST(MixturePlanTest, ListsHoldTheWorstCase) {
  const MixtureShape shape = {.experts = 256, .top_k = 8, .hidden = 64, .expert_width = 64};
  for (const int64_t rows : {1, 5, 64, 8192, 16384}) {
    const int64_t choices = rows * shape.top_k;
    const int64_t ends = std::min<int64_t>(shape.experts, choices);
    const int64_t full = (choices - ends) / kTokenTileRows;
    EXPECT_GE(TokenTilesMax(shape, rows), full + ends) << rows;
  }
  EXPECT_EQ(TokenTilesMax(shape, 1), 8);
}

TEST(MixturePlanTest, ArraysDoNotOverlap) {
  const MixtureShape shape = {.experts = 5, .top_k = 3, .hidden = 64, .expert_width = 64};
  const MixtureLayout layout = LayOutMixture(shape, 65);
  const std::vector<std::pair<size_t, size_t>> arrays = {
      {layout.logits, 65 * 5 * 4}, {layout.experts, 65 * 3 * 4},      {layout.weights, 65 * 3 * 4},
      {layout.slots, 65 * 3 * 4},  {layout.counts, 2 * 5 * 4},        {layout.begin, 5 * 4},
      {layout.tiles, 5 * 16},      {layout.work, sizeof(GroupedWork)}};
  size_t end = 0;
  for (const auto& [at, bytes] : arrays) {
    EXPECT_EQ(at % 16, 0u);
    EXPECT_GE(at, end);
    end = at + bytes;
  }
  EXPECT_GE(layout.bytes, end);
}

}  // namespace
}  // namespace deltafill::kernels::cuda
