// Plans of matrix products and the checks of their params, without a device.
#include "kernels/cuda/product_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "kernels/cuda/check_operators.h"
#include "kernels/cuda/plan.h"
#include "kernels/cuda/step_product_plan.h"

namespace deltafill::kernels::cuda {
namespace {

using testing::HasSubstr;

TEST(ProductPlanTest, CallsCoverEveryRowOnce) {
  for (int64_t rows : {1, 63, 64, 65, 300, 16384, 16385, 1048576}) {
    int64_t covered = 0;
    while (covered < rows) {
      const int64_t call = NextCallRows(rows - covered);
      ASSERT_GE(call, 1);
      const size_t row_class = RowClassOf(call);
      EXPECT_LE(call, kRowClasses[row_class].rows_max);
      if (row_class > 0) {
        EXPECT_GT(call, kRowClasses[row_class - 1].rows_max);
      }
      covered += call;
    }
    EXPECT_EQ(covered, rows);
  }
}

TEST(ProductPlanTest, ClassesAscendAndAreTunedForRowsOfTheirOwn) {
  int64_t before = 0;
  for (size_t i = 0; i < kRowClassCount; ++i) {
    const RowClass row_class = kRowClasses[i];
    EXPECT_GT(row_class.rows_max, before);
    EXPECT_EQ(RowClassOf(row_class.tuned_rows), i);
    before = row_class.rows_max;
  }
}

TEST(ProductPlanTest, SumsAreNeverSplit) {
  ProductAlgorithm algorithm;
  EXPECT_TRUE(IsAllowed(algorithm));
  algorithm.reduction = 1;
  EXPECT_FALSE(IsAllowed(algorithm));
  for (int32_t split : {-1, 2, 4}) {  // -1: the library's own choice, run by run
    for (uint32_t reduction : {0u, 1u, 2u, 4u}) {
      algorithm.split_k = split;
      algorithm.reduction = reduction;
      EXPECT_FALSE(IsAllowed(algorithm)) << split << " " << reduction;
    }
  }
}

TEST(ProductPlanTest, ProbeTriesEveryClassThatItsRowsReach) {
  for (int64_t out : {1, 16, 272, 2048, 18432, 163840, 1 << 24}) {
    const ProbePlan plan = PlanProbe(out);
    ASSERT_EQ(plan.calls.size(), kRowClassCount);
    EXPECT_GE(plan.rows, std::min(kProbeRowsMin, kRowClasses[0].rows_max));
    EXPECT_LE(plan.rows * out, std::max(kProbeElements + 2 * out, (kProbeRowsMin + 1) * out));
    int64_t before = 0;
    for (size_t i = 0; i < plan.calls.size(); ++i) {
      EXPECT_EQ(plan.calls[i].empty(), plan.rows <= before);
      std::set<int64_t> places;
      for (const ProbeCall& call : plan.calls[i]) {
        EXPECT_GE(call.first_row, 0);
        EXPECT_LE(call.first_row + call.rows, plan.rows);
        EXPECT_EQ(RowClassOf(call.rows), i);
        places.insert(call.first_row % 64);
      }
      // Unless the class's calls are the whole probe, a row is seen at several places.
      if (plan.rows > 2 * kRowClasses[i].rows_max) {
        EXPECT_GE(places.size(), 3u);
      }
      before = kRowClasses[i].rows_max;
    }
  }
}

ProductChoice Choice(int64_t out, std::vector<ProductAlgorithm> algorithms) {
  return {out, 2048, DType::kBF16, std::move(algorithms)};
}

TEST(ProductPlanTest, DigestIsOfWhatIsChosenNotOfItsOrder) {
  const ProductAlgorithm plain = {66, 20, 1, 0, 0, 0, 36, 0, 3};
  const ProductChoice a = Choice(2048, {plain, plain}), b = Choice(6144, {plain});
  EXPECT_EQ(DigestOf({a, b}), DigestOf({b, a, b}));
  EXPECT_NE(DigestOf({a, b}), DigestOf({a}));
  std::set<std::string> digests = {DigestOf({b})};
  for (int field = 0; field < 9; ++field) {
    ProductAlgorithm other = plain;
    other.id += field == 0;
    other.tile += field == 1;
    other.split_k += field == 2;
    other.reduction += field == 3;
    other.swizzling += field == 4;
    other.custom_option += field == 5;
    other.stages += field == 6;
    other.inner_shape += field == 7;
    other.cluster_shape += field == 8;
    EXPECT_TRUE(digests.insert(DigestOf({Choice(6144, {other})})).second) << field;
  }
  ProductChoice wide = b;
  wide.y_dtype = DType::kF32;
  EXPECT_TRUE(digests.insert(DigestOf({wide})).second);
}

TEST(ProductPlanTest, NumericsNameSaysWhatBitsDependOn) {
  const std::string name = CudaNumericsName(9, 0, 132, 130100, {Choice(64, {{}})});
  EXPECT_EQ(name, "cuda/bf16/sm_90x132/cublaslt-130100/products-" + DigestOf({Choice(64, {{}})}) +
                      "/block64/v8");
  EXPECT_EQ(DigestOf({}).size(), 16u);
}

TEST(ProductPlanTest, WorkspaceFollowsThePlan) {
  DeltaRuleShape shape;
  shape.heads = shape.value_heads = 32;
  shape.key_dim = shape.value_dim = 128;
  const std::vector<int64_t> offsets = {0, 1 << 20};
  const ForwardPlan ring = PlanForward(shape, offsets, {9, 0, 132, 232448});
  // 32 streams of 14 slots of 65 KiB, and 3 x 64 x 128 floats for each of 264 groups.
  EXPECT_EQ(WorkspaceOf(ring, shape).slots, size_t{448} * 65 * 1024);
  EXPECT_EQ(WorkspaceOf(ring, shape).exact_rows, size_t{264} * 3 * 64 * 128 * 4);
  EXPECT_EQ(WorkspaceOf(ring, shape).carried, 0u);
  const ForwardPlan portable = PlanForward(shape, offsets, {8, 9, 76, 101376});
  EXPECT_EQ(WorkspaceOf(portable, shape).carried, size_t{32} * 128 * 128 * 4);
  EXPECT_LT(WorkspaceOf(portable, shape).total(), size_t{300} << 20);
}

// The chunks of a step's parts cover the sum once, for any number of multiprocessors.
TEST(StepProductPlanTest, PartsFillTheDeviceAndHaveChunks) {
  for (const int multiprocessors : {1, 76, 132}) {
    const DeviceTraits traits = {9, 0, multiprocessors, 232448};
    for (const int64_t out : {1, 16, 272, 2048, 6144, 11264, 32000, 163840}) {
      for (const int64_t in : {8, 128, 256, 264, 2048, 5632, 9216}) {
        const StepProductPlan plan = PlanStepProduct(out, in, traits);
        const int parts = 1 << plan.parts_log2;
        EXPECT_EQ(plan.chunks, (in + kStepChunk - 1) / kStepChunk);
        EXPECT_LE(parts, std::min(kStepPartsMax, plan.chunks));
        const int64_t ctas = (out + 127) / 128 * parts;
        EXPECT_TRUE(parts == 1 || ctas <= 2 * multiprocessors) << out << " " << in;
        if (2 * parts <= std::min(kStepPartsMax, plan.chunks)) {
          EXPECT_GT(2 * ctas, 2 * multiprocessors);
        }
      }
    }
  }
  // The order of a sum is the same on every card with as many multiprocessors.
  EXPECT_EQ(PlanStepProduct(2048, 2048, {8, 0, 132, 0}).parts_log2, 3);
  EXPECT_EQ(PlanStepProduct(11264, 2048, {9, 0, 132, 0}).parts_log2, 1);
}

TEST(StepProductPlanTest, HopperPartsAreAFunctionOfTheShape) {
  for (const int64_t out : {1, 16, 272, 2048, 6144, 11264, 32000, 163840}) {
    for (const int64_t in : {8, 64, 128, 264, 2048, 5632, 9216}) {
      for (const bool swiglu : {false, true}) {
        const StepHopperPlan plan = PlanStepHopper(out, in, swiglu);
        const int64_t features = swiglu ? out / 2 : out, tile = swiglu ? 64 : 128;
        EXPECT_GE(plan.tiles * tile, features);
        EXPECT_LT((plan.tiles - 1) * tile, features);
        EXPECT_EQ(plan.blocks, (in + kStepBlock - 1) / kStepBlock);
        const int parts = 1 << plan.parts_log2, most = swiglu ? kStepPartsMax / 2 : kStepPartsMax;
        EXPECT_LE(parts, most);
        EXPECT_TRUE(parts == 1 || plan.blocks / parts >= kStepPartBlocksMin) << out << " " << in;
        EXPECT_TRUE(parts == 1 || plan.tiles * parts <= kStepCtasMost) << out << " " << in;
        if (2 * parts <= std::min(most, plan.blocks / kStepPartBlocksMin)) {
          EXPECT_GT(plan.tiles * 2 * parts, kStepCtasMost);
        }
      }
    }
  }
  EXPECT_EQ(PlanStepHopper(2048, 2048, false).parts_log2, 3);
  EXPECT_EQ(PlanStepHopper(11264, 2048, true).parts_log2, 1);
  EXPECT_EQ(PlanStepHopper(2048, 128, false).parts_log2, 0);
  for (int rows = 1; rows <= kStepRowsMax; ++rows) EXPECT_GE(StepRowsMultiplied(rows), rows);
}

TEST(StepProductPlanTest, RowsOfShortSumsAreSharedOut) {
  const auto rows_of = [](int rows, const std::vector<std::pair<int64_t, int64_t>>& shapes) {
    std::vector<StepHopperPlan> plans;
    for (const auto& [out, in] : shapes) plans.push_back(PlanStepHopper(out, in, false));
    return StepCtaRows(rows, plans);
  };
  // The gates, and what other layers multiply.
  EXPECT_EQ(rows_of(64, {{2048, 128}, {2048, 128}}), 16);
  EXPECT_EQ(rows_of(64, {{4096, 128}, {4096, 128}}), 16);
  EXPECT_EQ(rows_of(64, {{2048, 256}}), 16);
  EXPECT_EQ(rows_of(64, {{2048, 264}}), 64);
  EXPECT_EQ(rows_of(64, {{2048, 2048}}), 64);
  EXPECT_EQ(rows_of(64, {{2048, 128}, {32, 2048}}), 64);
  EXPECT_EQ(rows_of(64, {{163840, 128}}), 64);
  for (int rows = 1; rows <= kStepRowsMax; ++rows) {
    for (const int64_t out : {1, 2048, 8192, 16384, 16896, 17024, 32000}) {
      const int cta_rows = rows_of(rows, {{out, 128}}), groups = (rows + cta_rows - 1) / cta_rows;
      EXPECT_LE(cta_rows, StepRowsMultiplied(rows));
      EXPECT_GE(cta_rows, std::min(StepRowsMultiplied(rows), kStepGroupRows));
      const auto tiles = (out + kStepCtaFeatures - 1) / kStepCtaFeatures;
      EXPECT_TRUE(groups == 1 || groups * tiles <= kStepCtasMost) << rows << " " << out;
      if (cta_rows > kStepGroupRows) {
        const int halves = (rows + cta_rows / 2 - 1) / (cta_rows / 2);
        EXPECT_GT(halves * tiles, kStepCtasMost) << rows << " " << out;
      }
    }
  }
}

// A valid call; each test breaks one field.
struct Product {
  alignas(16) uint16_t rows[64] = {};
  MatMulParams params;
  Product() {
    params.x = {rows, DType::kBF16, 64};
    params.y = {rows, DType::kBF16, 32};
    params.rows = 3;
  }
  Status Check() const { return CheckMatMul(params, 32, 64); }
};

TEST(CudaOperatorChecksTest, MatMul) {
  EXPECT_TRUE(Product().Check().ok());
  Product call;
  call.params.y.dtype = DType::kF32;
  EXPECT_TRUE(call.Check().ok());
  call.params.x.dtype = DType::kF32;
  EXPECT_EQ(call.Check().code(), StatusCode::kUnsupported);
  EXPECT_THAT(call.Check().message(), HasSubstr("x.dtype"));
  call = Product();
  call.params.x.row_stride = 63;
  EXPECT_THAT(call.Check().message(), HasSubstr("x.row_stride: 63 is less than the width 64"));
  call = Product();
  call.params.y.data = nullptr;
  EXPECT_THAT(call.Check().message(), HasSubstr("y.data: is null"));
  call.params.rows = 0;
  EXPECT_TRUE(call.Check().ok());
  call.params.rows = -1;
  EXPECT_THAT(call.Check().message(), HasSubstr("rows: -1 is not in [0, "));
}

TEST(CudaOperatorChecksTest, ConvolvedProductsKeepTailsInStepsOnly) {
  Product call;
  alignas(16) float taps[4 * 16] = {}, tail[3 * 16] = {};
  const std::vector<int64_t> offsets = {0, 1, 2, 3};
  float* const tails[] = {tail, tail, tail};
  MatMulShortConvParams params = {.product = call.params,
                                  .conv = {.x = call.params.y,
                                           .weight = taps,
                                           .offsets = offsets,
                                           .y = {call.rows, DType::kBF16, 16},
                                           .channels = 16}};
  const auto check = [&] { return CheckMatMulShortConv(params, 32, 64); };
  EXPECT_TRUE(check().ok()) << check().message();
  params.conv.tails_out = tails;
  EXPECT_THAT(check().message(), HasSubstr("conv.tails_out: is not null"));
  params.product.step = true;
  EXPECT_TRUE(check().ok()) << check().message();
  params.conv.channels = 40;
  EXPECT_THAT(check().message(), HasSubstr("conv.channels"));
}

TEST(CudaOperatorChecksTest, WeightsAndOptions) {
  const float values[64] = {};
  EXPECT_TRUE(CheckWeight(values, DType::kF32, 4, 16).ok());
  EXPECT_THAT(CheckWeight(values, DType::kF32, 4, 12).message(),
              HasSubstr("in_features: 12 is not a multiple of 8"));
  EXPECT_THAT(CheckWeight(nullptr, DType::kF32, 4, 16).message(), HasSubstr("host_data: is null"));
  EXPECT_THAT(CheckWeight(values, DType::kF32, 0, 16).message(), HasSubstr("out_features: 0"));
  EXPECT_TRUE(CheckOptions({.compute_dtype = DType::kBF16}).ok());
  EXPECT_THAT(CheckOptions({}).message(), HasSubstr("compute_dtype: 0"));
}

TEST(CudaOperatorChecksTest, EmbeddingAndSwiGlu) {
  alignas(16) uint16_t rows[64] = {};
  const uint32_t tokens[] = {0, 7, 8};
  EmbeddingParams embedding = {nullptr, tokens, {rows, DType::kBF16, 16}};
  EXPECT_TRUE(CheckEmbedding(embedding, 9, 16).ok());
  EXPECT_THAT(CheckEmbedding(embedding, 8, 16).message(), HasSubstr("tokens[2]: 8 is not below"));
  embedding.y.data = rows + 1;
  EXPECT_THAT(CheckEmbedding(embedding, 9, 16).message(), HasSubstr("y: rows are not aligned"));
  const ConstRows in = {rows, DType::kBF16, 16};
  SwiGluParams swiglu = {in, in, {rows, DType::kBF16, 16}, 2, 16};
  EXPECT_TRUE(CheckSwiGlu(swiglu).ok());
  swiglu.width = 12;
  EXPECT_THAT(CheckSwiGlu(swiglu).message(), HasSubstr("width: 12 is not a multiple of 8"));
  EXPECT_THAT(CheckCopy(nullptr, rows, 2).message(), HasSubstr("to: is null"));
  EXPECT_TRUE(CheckCopy(nullptr, nullptr, 0).ok());
}

}  // namespace
}  // namespace deltafill::kernels::cuda
