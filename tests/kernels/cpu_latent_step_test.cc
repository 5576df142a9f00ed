// Appending to the latent cache, and the one-token step.
#include "tests/kernels/cpu_latent_test_base.h"
#include "tests/testing/operator_reference.h"

namespace deltafill::kernels {
namespace {

using test::ByteDifference;
using test::LatentDims;
using test::LatentReference;
using test::Random;

class CpuLatentStepTest : public CpuLatentTest {};

TEST_F(CpuLatentStepTest, MatchesFloat64AndPrefill) {
  Random random(1);
  for (const LatentDims& dims : kLatentDims) {
    const auto w = RandomProjection(dims, random);
    const auto projection = Project(dims, w);
    const CachedLatents latents(dims, 600, random);
    const LatentReference reference(dims, w, latents.dense(), DefaultScale(dims));
    for (int64_t position : {0, 1, 62, 63, 64, 65, 255, 256, 511, 599}) {
      const auto q = random.NormalVector(dims.QueryWidth());
      const LatentSequence sequences[] = {latents.At(position)};
      const auto o = Step(*projection, q, sequences, 2);
      EXPECT_LE(test::RelativeError(o, reference.Attend(q, position)), 3e-6) << position;

      const int64_t block = position / 64 * 64;
      std::vector<float> rows(static_cast<size_t>((position - block) * dims.QueryWidth()), 0.0f);
      rows.insert(rows.end(), q.begin(), q.end());
      const LatentSequence from_block[] = {latents.At(block)};
      const int64_t lengths[] = {position - block + 1};
      const auto prefilled = Prefill(*projection, rows, lengths, from_block, 1);
      const auto last = Slice(prefilled, position - block, 1, dims.OutputWidth());
      const std::vector<double> expected(last.begin(), last.end());
      EXPECT_LE(test::RelativeError(o, expected), 5e-6) << position;
    }
  }
}

TEST_F(CpuLatentStepTest, MatchesFloat64AtPartAndPageEdges) {
  Random random(2);
  const auto w = RandomProjection(kOddDims, random);
  const auto projection = Project(kOddDims, w);
  const CachedLatents latents(kOddDims, 4200, random);
  const LatentReference reference(kOddDims, w, latents.dense(), DefaultScale(kOddDims));
  for (int64_t position : {1022, 1023, 1024, 1025, 2047, 3000, 4094, 4095, 4096, 4097, 4199}) {
    const auto q = random.NormalVector(kOddDims.QueryWidth());
    const LatentSequence sequences[] = {latents.At(position)};
    const auto o = Step(*projection, q, sequences, 3, 2);
    EXPECT_LE(test::RelativeError(o, reference.Attend(q, position)), 3e-6) << position;
  }
}

// More sequences than parts are held at once, of one and of several parts.
TEST_F(CpuLatentStepTest, BatchAndThreadsDoNotShow) {
  Random random(3);
  for (const LatentDims& dims : {kLatentDims[0], kOddDims}) {
    const auto projection = Project(dims, RandomProjection(dims, random));
    const CachedLatents latents(dims, 5000, random);
    std::vector<LatentSequence> sequences;
    for (int i = 0; i < 70; ++i) {
      sequences.push_back(
          latents.At(i % 7 == 0 ? random.Integer(0, 4999) : random.Integer(0, 300)));
    }
    const auto q = random.NormalVector(70 * dims.QueryWidth());
    std::vector<float> alone;
    for (int64_t i = 0; i < 70; ++i) {
      const auto o = Step(*projection, Slice(q, i, 1, dims.QueryWidth()), {sequences.data() + i, 1},
                          1 + static_cast<int>(i) % 3);
      alone.insert(alone.end(), o.begin(), o.end());
    }
    for (int threads : {1, 2, 3}) {
      EXPECT_EQ(ByteDifference(Step(*projection, q, sequences, threads, threads), alone), "");
    }
  }
}

TEST_F(CpuLatentStepTest, HugeScoresPickOneKey) {
  constexpr LatentDims kDims{1, 2, 0, 2, 2};
  const std::vector<float> w = {1, 0, 0, 0, 1, 0, 0, 1};  // k = (c0, 0), v = c
  const auto projection = Project(kDims, w);
  for (int64_t largest : {0, 70, 1023, 1024, 2999}) {
    std::vector<float> dense;
    for (int64_t token = 0; token < 3000; ++token) {
      dense.push_back(token == largest ? 3.0f : -static_cast<float>(token % 5));
      dense.push_back(static_cast<float>(token));
    }
    const CachedLatents latents(kDims, dense);
    for (float magnitude : {1e4f, 1e30f}) {
      const LatentSequence sequences[] = {latents.At(2999)};
      const std::vector<float> q = {magnitude, 0.0f};
      const auto o = Step(*projection, q, sequences, 2);
      EXPECT_EQ(o[0], 3.0f);
      EXPECT_EQ(o[1], static_cast<float>(largest));
    }
  }
}

TEST_F(CpuLatentStepTest, NonFiniteSequencesStayAlone) {
  Random random(4);
  const auto projection = Project(kOddDims, RandomProjection(kOddDims, random));
  const CachedLatents clean(kOddDims, 1100, random);
  auto dense = clean.dense();
  dense[static_cast<size_t>(1050 * kOddDims.LatentWidth())] = std::nanf("");
  const CachedLatents bad(kOddDims, dense);
  const auto q = random.NormalVector(4 * kOddDims.QueryWidth());
  const LatentSequence before[] = {clean.At(1049), clean.At(1050), clean.At(1060), clean.At(90)};
  const LatentSequence after[] = {bad.At(1049), bad.At(1050), bad.At(1060), clean.At(90)};
  const auto expected = Step(*projection, q, before, 1);
  const auto o = Step(*projection, q, after, 2);
  for (int64_t i : {0, 3}) {
    EXPECT_EQ(ByteDifference(Slice(o, i, 1, kOddDims.OutputWidth()),
                             Slice(expected, i, 1, kOddDims.OutputWidth())),
              "");
  }
  EXPECT_FALSE(test::AllFinite(Slice(o, 1, 1, kOddDims.OutputWidth())));
  EXPECT_FALSE(test::AllFinite(Slice(o, 2, 1, kOddDims.OutputWidth())));
}

TEST_F(CpuLatentStepTest, NothingToDoIsFine) {
  Random random(5);
  const auto projection = Project(kOddDims, RandomProjection(kOddDims, random));
  EXPECT_TRUE(Lane(2)->LatentStep({.projection = projection.get()}).ok());
  const int64_t offsets[] = {0};
  EXPECT_TRUE(Lane(2)->LatentPrefill({.projection = projection.get(), .offsets = offsets}).ok());
}

class CpuLatentAppendTest : public CpuLatentTest {
 protected:
  // Appends rows of one sequence from `first` on to pages that hold markers.
  std::vector<std::vector<float>> Append(std::span<const float> x, int64_t first, int64_t rows,
                                         std::span<const float> weight, int rank, int rope_dim,
                                         int threads) {
    const int64_t width = rank + rope_dim;
    std::vector<std::vector<float>> pages(
        static_cast<size_t>((first + rows + kLatentPageTokens - 1) / kLatentPageTokens),
        std::vector<float>(static_cast<size_t>(kLatentPageTokens * width), PlacedRows::kMarker));
    std::vector<void*> pointers;
    for (auto& page : pages) pointers.push_back(page.data());
    const LatentSequence sequences[] = {{{}, 7}, {pointers, first}};
    const int64_t offsets[] = {0, 0, rows};
    PlacedRows placed(x, rows, width, threads, threads);
    const Status status = Lane(threads)->LatentAppend({.x = placed,
                                                       .norm_weight = weight.data(),
                                                       .eps = 1e-5f,
                                                       .rank = rank,
                                                       .rope_dim = rope_dim,
                                                       .offsets = offsets,
                                                       .sequences = sequences});
    EXPECT_TRUE(status.ok()) << status.message();
    return pages;
  }
};

TEST_F(CpuLatentAppendTest, NormalisesTheLatentOnly) {
  Random random(6);
  for (const auto& [rank, rope_dim] :
       std::vector<std::pair<int, int>>{{40, 8}, {7, 0}, {512, 64}}) {
    const int64_t width = rank + rope_dim;
    for (const auto& [first, rows] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {13, 100}, {4090, 20}, {4095, 1}}) {
      const auto x = random.NormalVector(rows * width);
      const auto weight = random.NormalVector(rank);
      std::vector<float> latents;
      for (int64_t row = 0; row < rows; ++row) {
        const auto c = Slice(x, row, 1, width);
        latents.insert(latents.end(), c.begin(), c.begin() + rank);
      }
      const auto expected = test::RmsNormReference(latents, weight, {}, rows, 1, rank, 1e-5);
      const auto pages = Append(x, first, rows, weight, rank, rope_dim, 2);
      std::vector<float> normalised;
      int64_t written = 0;
      for (const auto& page : pages) {
        for (float element : page) written += element == PlacedRows::kMarker ? 0 : 1;
      }
      EXPECT_EQ(written, rows * width);
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t token = first + row;
        const auto& page = pages[static_cast<size_t>(token / kLatentPageTokens)];
        const auto cached = Slice(page, token % kLatentPageTokens, 1, width);
        normalised.insert(normalised.end(), cached.begin(), cached.begin() + rank);
        EXPECT_TRUE(
            std::equal(cached.begin() + rank, cached.end(), x.begin() + row * width + rank));
      }
      EXPECT_LE(test::RelativeError(normalised, expected), 1e-6);
    }
  }
}

TEST_F(CpuLatentAppendTest, CutsAndThreadsDoNotShow) {
  Random random(7);
  const auto x = random.NormalVector(300 * 48);
  const auto weight = random.NormalVector(40);
  const auto whole = Append(x, 4000, 300, weight, 40, 8, 1);
  for (int64_t begin : {0, 1, 95, 96, 97, 299}) {
    const auto part = Append(Slice(x, begin, 300 - begin, 48), 4000 + begin, 300 - begin, weight,
                             40, 8, 1 + static_cast<int>(begin) % 3);
    for (int64_t token = 4000 + begin; token < 4300; ++token) {
      const auto page = static_cast<size_t>(token / kLatentPageTokens);
      EXPECT_EQ(ByteDifference(Slice(part[page], token % kLatentPageTokens, 1, 48),
                               Slice(whole[page], token % kLatentPageTokens, 1, 48)),
                "");
    }
  }
}

}  // namespace
}  // namespace deltafill::kernels
