// Plans and checks of the CUDA backend's latent attention, without a device.
#include "kernels/cuda/latent_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/latent_limits.h"
#include "kernels/cuda/workspace_limits.h"

namespace deltafill::kernels::cuda {
namespace {

using testing::HasSubstr;

TEST(LatentPlanTest, ChunksAreWholePagesFromTokenZero) {
  for (const auto& [first, rows] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 1}, {0, 4096}, {0, 4097}, {64, 4096}, {4096, 1}, {8192 + 64, 10000}}) {
    const std::vector<LatentChunk> chunks = PlanLatentChunks(first, rows, kLatentPageTokens);
    int64_t covered = 0;
    for (const LatentChunk& chunk : chunks) {
      EXPECT_EQ(chunk.begin, covered);
      EXPECT_EQ(chunk.begin % kLatentPageTokens, 0);
      covered = chunk.end;
      // Panels before it end before the chunk; the panel at it does not.
      EXPECT_LE(first + chunk.first_panel * kBlockTokens, std::max(first, chunk.begin));
      EXPECT_GE(first + chunk.first_panel * kBlockTokens + kBlockTokens, chunk.begin + 1);
      EXPECT_LT(chunk.first_panel * kBlockTokens, rows);
    }
    EXPECT_EQ(covered, first + rows);
  }
}

TEST(LatentPlanTest, StepsShareLaunchesWithinTheWorkspace) {
  std::vector<int64_t> positions(300, 20000);
  positions[7] = int64_t{4} << 20;  // longer than the workspace's parts: alone
  positions[8] = 0;
  const std::vector<LatentStepGroup> groups = PlanLatentStep(positions);
  int64_t next = 0;
  for (const LatentStepGroup& group : groups) {
    EXPECT_EQ(group.first, next);
    ASSERT_GE(group.count, 1);
    int64_t parts = 0;
    for (int64_t i = group.first; i < group.first + group.count; ++i) {
      parts += positions[static_cast<size_t>(i)] / kLatentPartTokens + 1;
    }
    EXPECT_EQ(group.parts, parts);
    EXPECT_TRUE(parts <= kLatentPartsHeld || group.count == 1);
    next += group.count;
  }
  EXPECT_EQ(next, 300);
  EXPECT_LE(groups.size(), 9u);
  EXPECT_TRUE(PlanLatentStep({}).empty());
}

TEST(LatentPlanTest, ShapesThatKernelsServe) {
  LatentShape shape = {.heads = 32, .nope_dim = 128, .rope_dim = 64, .value_dim = 128, .rank = 512};
  EXPECT_TRUE(CheckLatentShape(shape).ok());
  EXPECT_EQ(LatentInstanceFor(shape).query_dim, 192);
  EXPECT_FLOAT_EQ(LatentScale(shape), 0.072168784f);
  shape.scale = 0.5f;
  EXPECT_EQ(LatentScale(shape), 0.5f);
  shape.rank = 516;
  EXPECT_EQ(CheckLatentShape(shape).code(), StatusCode::kUnsupported);
  EXPECT_THAT(CheckLatentShape(shape).message(), HasSubstr("shape.rank: 516"));
  shape.rank = 500;
  EXPECT_THAT(CheckLatentShape(shape).message(), HasSubstr("shape.rank: 500 is not a multiple"));
  shape.rank = 512;
  shape.nope_dim = 192;
  EXPECT_THAT(CheckLatentShape(shape).message(), HasSubstr("shape.rope_dim: 256"));
  shape.nope_dim = 0;
  EXPECT_EQ(CheckLatentShape(shape).code(), StatusCode::kInvalidArgument);
}

// Sums of kernels that pad the values' width are planned with it.
TEST(LatentPlanTest, ThePlannedWorkspaceHoldsEveryShape) {
  for (int value_dim = 8; value_dim <= 128; value_dim += 8) {
    for (int nope_dim : {8, 64, 128}) {
      LatentShape shape;
      shape.heads = 3;
      shape.nope_dim = nope_dim;
      shape.rope_dim = 64;
      shape.value_dim = value_dim;
      const int64_t rows = 1000, padded_rows = 1024;
      const int64_t states = padded_rows * shape.heads;
      const int64_t expanded = kLatentChunkTokens * shape.heads * (nope_dim + value_dim) * 2;
      const int64_t sums = states * LatentInstanceFor(shape).value_dim * 4;
      EXPECT_GE(LatentPrefillWorkspaceBytes(shape, rows),
                static_cast<size_t>(expanded + sums + states * 8))
          << nope_dim << " " << value_dim;
    }
  }
}

TEST(LatentPlanTest, ChecksNameSequenceAndPage) {
  alignas(16) static uint16_t rows[4096] = {};
  const LatentShape shape = {.heads = 1, .nope_dim = 8, .rope_dim = 8, .value_dim = 8, .rank = 8};
  std::vector<void*> pages = {rows, nullptr};
  const std::vector<int64_t> offsets = {0, 65};
  LatentSequence sequence = {pages, 4032};
  LatentPrefillParams params;
  params.q = {rows, DType::kBF16, 16};
  params.offsets = offsets;
  params.sequences = {&sequence, 1};
  params.o = {rows, DType::kBF16, 8};
  EXPECT_THAT(CheckLatentPrefill(params, shape).message(),
              HasSubstr("sequences[0].pages[1]: is null"));
  pages[1] = rows;
  EXPECT_TRUE(CheckLatentPrefill(params, shape).ok());
  sequence.first_token = 32;
  EXPECT_THAT(CheckLatentPrefill(params, shape).message(), HasSubstr("not a multiple of 64"));
  LatentStepParams step;
  step.q = params.q;
  step.o = params.o;
  sequence = {std::span<void* const>(pages).first(1), 4096};
  step.sequences = {&sequence, 1};
  EXPECT_THAT(CheckLatentStep(step, shape).message(),
              HasSubstr("sequences[0].pages.size(): 1 is less than the 2 pages of 4097 tokens"));
  LatentAppendParams append;
  append.rank = append.rope_dim = 8;
  append.offsets = offsets;
  append.sequences = {&sequence, 1};
  EXPECT_THAT(CheckLatentAppend(append).message(), HasSubstr("norm_weight: is null"));
}

}  // namespace
}  // namespace deltafill::kernels::cuda
