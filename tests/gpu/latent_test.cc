// Latent attention on the device: values against float64 on the same bf16 numbers; a row's bits,
// which depend on neither the range it came in, its pages' rest, nor the batch.
#include <algorithm>
#include <cmath>

#include "tests/gpu/backend_fixture.h"
#include "tests/testing/latent_reference.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DType;
using kernels::kLatentPageTokens;
using kernels::LatentSequence;

constexpr LatentDims kSmall = {2, 32, 16, 32, 64};
constexpr LatentDims kNoRope = {3, 64, 0, 24, 40};
constexpr LatentDims kMiddle = {2, 96, 32, 128, 256};
constexpr LatentDims kReal = {4, 128, 64, 128, 512};
constexpr LatentDims kRealHeads = {2, 128, 64, 128, 64};

// One layer and one sequence's cache of it, appended by the backend.
class LatentTest : public CudaBackendTest {
 protected:
  struct Cache {
    std::vector<BackendBuffer> memory;
    std::vector<void*> pages;
    std::vector<float> dense;  // as cached
    LatentSequence At(int64_t first_token) const { return {pages, first_token}; }
  };

  std::unique_ptr<kernels::LatentProjection> Project(const LatentDims& dims, uint64_t seed) {
    Random random(seed);
    w_ = Bf16Normal(&random, dims.ProjectionRows() * dims.rank,
                    1.0 / std::sqrt(static_cast<double>(dims.rank)));
    const kernels::LatentShape shape = {.heads = static_cast<int>(dims.heads),
                                        .nope_dim = static_cast<int>(dims.nope_dim),
                                        .rope_dim = static_cast<int>(dims.rope_dim),
                                        .value_dim = static_cast<int>(dims.value_dim),
                                        .rank = static_cast<int>(dims.rank)};
    std::unique_ptr<kernels::LatentProjection> projection;
    Must(backend_->NewLatentProjection(w_.data(), DType::kF32, shape, &projection));
    return projection;
  }

  // Pages of NaN, into which rows are appended in the given ranges.
  Cache Append(const LatentDims& dims, int64_t tokens, const std::vector<int64_t>& lengths) {
    Random random(21);
    const int64_t width = dims.LatentWidth();
    const std::vector<float> x = Bf16Normal(&random, tokens * width, 2.0);
    const BackendBuffer norm = Upload(random.NormalVector(dims.rank, 0.2, 1.0));
    const BackendBuffer x_device = UploadBf16(x);
    Cache cache;
    for (int64_t first = 0; first < tokens; first += kLatentPageTokens) {
      cache.memory.push_back(
          Upload(std::vector<uint16_t>(static_cast<size_t>(kLatentPageTokens * width), 0x7FC0)));
      cache.pages.push_back(cache.memory.back().as<void>());
    }
    int64_t first = 0;
    for (int64_t length : lengths) {
      const std::vector<int64_t> offsets = {0, length};
      const LatentSequence sequence = cache.At(first);
      Must(lane_->LatentAppend({.x = {x_device.as<uint16_t>() + first * width, DType::kBF16, width},
                                .norm_weight = norm.as<float>(),
                                .rank = static_cast<int>(dims.rank),
                                .rope_dim = static_cast<int>(dims.rope_dim),
                                .offsets = offsets,
                                .sequences = {&sequence, 1}}));
      first += length;
    }
    EXPECT_EQ(first, tokens);
    for (const BackendBuffer& page : cache.memory) {
      const std::vector<float> rows = ReadBf16(page);
      cache.dense.insert(cache.dense.end(), rows.begin(), rows.end());
    }
    cache.dense.resize(static_cast<size_t>(tokens * width));
    const std::vector<float> weight = Read<float>(norm);
    for (int64_t token = 0; token < tokens; token += 37) {
      double squares = 0.0;
      for (int64_t i = 0; i < dims.rank; ++i) squares += std::pow(x[token * width + i], 2.0);
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(dims.rank) + 1e-6);
      for (int64_t i = 0; i < width; ++i) {
        const double raw = x[token * width + i];
        const double expected = i < dims.rank ? raw * factor * weight[i] : raw;
        EXPECT_NEAR(cache.dense[token * width + i], expected, 5e-3 * std::abs(expected) + 1e-6);
      }
    }
    return cache;
  }

  std::vector<float> Prefill(const kernels::LatentProjection& projection, const BackendBuffer& q,
                             const Cache& cache, int64_t first, int64_t rows) {
    const int64_t query = projection.shape().QueryWidth(), out = projection.shape().OutputWidth();
    const BackendBuffer o(backend_, static_cast<size_t>(rows * out * 2));
    const std::vector<int64_t> offsets = {0, rows};
    const LatentSequence sequence = cache.At(first);
    Must(lane_->LatentPrefill({.projection = &projection,
                               .q = {q.as<uint16_t>() + first * query, DType::kBF16, query},
                               .offsets = offsets,
                               .sequences = {&sequence, 1},
                               .o = {o.as<void>(), DType::kBF16, out}}));
    return ReadBf16(o);
  }

  std::vector<float> w_;
};

TEST_F(LatentTest, Values) {
  for (const LatentDims& dims : {kSmall, kNoRope, kMiddle, kReal}) {
    const int64_t tokens = 200;
    const auto projection = Project(dims, 5);
    const Cache cache = Append(dims, tokens, {64, 100, 36});
    Random random(6);
    const std::vector<float> q = Bf16Normal(&random, tokens * dims.QueryWidth());
    const BackendBuffer q_device = UploadBf16(q);
    const std::vector<float> o = Prefill(*projection, q_device, cache, 0, tokens);
    const double scale = 1.0 / std::sqrt(static_cast<double>(dims.nope_dim + dims.rope_dim));
    const LatentReference reference(dims, w_, cache.dense, scale);
    std::vector<LatentSequence> sequences;
    std::vector<float> step_q;
    std::vector<double> expected;
    for (int64_t token : {0, 1, 63, 64, 65, 130, 199}) {
      const std::span<const float> row =
          std::span(q).subspan(token * dims.QueryWidth(), dims.QueryWidth());
      const std::vector<double> of_row = reference.Attend(row, token);
      const std::vector<float> got(o.begin() + token * dims.OutputWidth(),
                                   o.begin() + (token + 1) * dims.OutputWidth());
      EXPECT_LE(RelativeError(got, of_row), 1e-2) << token << " of rank " << dims.rank;
      sequences.push_back(cache.At(token));
      step_q.insert(step_q.end(), row.begin(), row.end());
      expected.insert(expected.end(), of_row.begin(), of_row.end());
    }
    const BackendBuffer step_in = UploadBf16(step_q);
    const BackendBuffer step_out(backend_, expected.size() * 2);
    Must(lane_->LatentStep({.projection = projection.get(),
                            .q = {step_in.as<void>(), DType::kBF16, dims.QueryWidth()},
                            .sequences = sequences,
                            .o = {step_out.as<void>(), DType::kBF16, dims.OutputWidth()}}));
    EXPECT_LE(RelativeError(ReadBf16(step_out), expected), 5e-3) << dims.rank;
  }
}

// Ranges, also across pages, give the bits of one pass over all rows.
TEST_F(LatentTest, RangesDoNotShowInTheBits) {
  const LatentDims dims = kSmall;
  const int64_t tokens = 2 * kLatentPageTokens + 300;
  const auto projection = Project(dims, 7);
  const Cache cache = Append(dims, tokens, {1000, 4096, tokens - 5096});
  Random random(8);
  const BackendBuffer q = UploadBf16(Bf16Normal(&random, tokens * dims.QueryWidth()));
  const std::vector<float> all = Prefill(*projection, q, cache, 0, tokens);
  ASSERT_TRUE(AllFinite(all));
  const std::vector<std::pair<int64_t, int64_t>> ranges = {
      {0, 1},      {0, 64},     {64, 65},        {128, 3000},           {4032, 64},
      {4032, 128}, {4096, 100}, {4160, 4096},    {8128, tokens - 8128}, {8192, 5},
      {0, 4096},   {0, 4097},   {2048, 4096 + 1}};
  for (const auto& [first, rows] : ranges) {
    const std::vector<float> part = Prefill(*projection, q, cache, first, rows);
    EXPECT_EQ(ByteDifference(part, std::span(all).subspan(first * dims.OutputWidth(),
                                                          rows * dims.OutputWidth())),
              "")
        << first << " + " << rows;
  }
}

// Heads that a kernel of their own may serve: chunks of several pages, and every block edge.
TEST_F(LatentTest, RangesOfTheRealHeadsDoNotShowInTheBits) {
  const LatentDims dims = kRealHeads;
  const int64_t tokens = 4 * kLatentPageTokens + 900;
  const auto projection = Project(dims, 11);
  const Cache cache = Append(dims, tokens, {tokens});
  Random random(12);
  const std::vector<float> q = Bf16Normal(&random, tokens * dims.QueryWidth());
  const BackendBuffer q_device = UploadBf16(q);
  const std::vector<float> all = Prefill(*projection, q_device, cache, 0, tokens);
  ASSERT_TRUE(AllFinite(all));
  std::vector<std::pair<int64_t, int64_t>> ranges = {
      {0, 1},       {0, 64},      {0, 65},
      {64, 1},      {64, 64},     {64, 65},
      {64, 200},    {128, 3000},  {4032, 128},
      {16320, 64},  {16320, 65},  {16384, 1},
      {16384, 64},  {16448, 200}, {8192, 8192},
      {8192, 8193}, {16320, 900}, {15000 / 64 * 64, 1500},
      {0, 16384},   {64, 16384},  {64, 16384 + 64}};
  for (int64_t rows = 1; rows < 400; rows += 21) ranges.push_back({rows / 3 * 64, rows});
  for (const auto& [first, rows] : ranges) {
    const std::vector<float> part = Prefill(*projection, q_device, cache, first, rows);
    ASSERT_EQ(ByteDifference(part, std::span(all).subspan(first * dims.OutputWidth(),
                                                          rows * dims.OutputWidth())),
              "")
        << first << " + " << rows;
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(dims.nope_dim + dims.rope_dim));
  const LatentReference reference(dims, w_, cache.dense, scale);
  for (int64_t token : {127L, 128L, 300L, 4100L, tokens - 1}) {
    const std::vector<double> expected =
        reference.Attend(std::span(q).subspan(token * dims.QueryWidth(), dims.QueryWidth()), token);
    const std::vector<float> got(all.begin() + token * dims.OutputWidth(),
                                 all.begin() + (token + 1) * dims.OutputWidth());
    EXPECT_LE(RelativeError(got, expected), 1.5e-2) << token;
  }
}

TEST_F(LatentTest, PackedSequencesAndBatchesDoNotShowInTheBits) {
  const LatentDims dims = kReal;
  const auto projection = Project(dims, 9);
  const Cache cache = Append(dims, 1500, {1500});
  Random random(10);
  const BackendBuffer q = UploadBf16(Bf16Normal(&random, 1500 * dims.QueryWidth()));
  const int64_t query = dims.QueryWidth(), out = dims.OutputWidth();
  // Prefill: three sequences in one call, one without rows.
  const std::vector<int64_t> offsets = {0, 70, 70, 300};
  const std::vector<LatentSequence> packed = {cache.At(0), cache.At(0), cache.At(64)};
  const BackendBuffer o(backend_, static_cast<size_t>(300 * out * 2));
  Must(lane_->LatentPrefill({.projection = projection.get(),
                             .q = {q.as<void>(), DType::kBF16, query},
                             .offsets = offsets,
                             .sequences = packed,
                             .o = {o.as<void>(), DType::kBF16, out}}));
  const std::vector<float> together = ReadBf16(o);
  const std::vector<float> first = Prefill(*projection, q, cache, 0, 70);
  EXPECT_EQ(ByteDifference(std::span(together).first(70 * out), first), "");
  // Steps: position 1,200 alone and among others.
  const auto step = [&](const std::vector<int64_t>& positions) {
    std::vector<LatentSequence> sequences;
    for (int64_t position : positions) sequences.push_back(cache.At(position));
    const int64_t batch = static_cast<int64_t>(positions.size());
    const BackendBuffer rows(backend_, static_cast<size_t>(batch * query * 2));
    const std::vector<uint16_t> queries = Read<uint16_t>(q);
    for (int64_t i = 0; i < batch; ++i) {  // every row has the query of its position
      Must(lane_->CopyFromHost(rows.as<uint16_t>() + i * query,
                               queries.data() + positions[static_cast<size_t>(i)] * query,
                               static_cast<size_t>(query) * 2));
    }
    Must(lane_->Synchronize());
    const BackendBuffer result(backend_, static_cast<size_t>(batch * out * 2));
    Must(lane_->LatentStep({.projection = projection.get(),
                            .q = {rows.as<void>(), DType::kBF16, query},
                            .sequences = sequences,
                            .o = {result.as<void>(), DType::kBF16, out}}));
    return ReadBf16(result);
  };
  const std::vector<float> alone = step({1200});
  const std::vector<float> batch = step({3, 1499, 1023, 1024, 1200, 0});
  EXPECT_EQ(ByteDifference(std::span(batch).subspan(4 * out, out), alone), "");
}

}  // namespace
}  // namespace deltafill::test
