#include "kernels/cpu/latent_operators.h"
#include "tests/kernels/cpu_latent_test_base.h"

namespace deltafill::kernels {
namespace {

using test::ByteDifference;
using test::LatentDims;
using test::LatentReference;
using test::Random;

class CpuLatentPrefillTest : public CpuLatentTest {};

// Largest error of the rows at `positions`, row i of o being position first + i.
double ErrorAt(const LatentReference& reference, const LatentDims& dims, std::span<const float> q,
               std::span<const float> o, std::span<const int64_t> positions) {
  double largest = 0.0;
  for (int64_t position : positions) {
    const auto expected = reference.Attend(Slice(q, position, 1, dims.QueryWidth()), position);
    const auto actual = Slice(o, position, 1, dims.OutputWidth());
    largest = std::max(largest, test::RelativeError(actual, expected));
  }
  return largest;
}

// The rows next to every edge, and some others.
std::vector<int64_t> PositionsToCheck(int64_t tokens, Random& random) {
  std::vector<int64_t> positions = {0, tokens - 1, random.Integer(0, tokens - 1)};
  for (int64_t edge : {64, 128, 256, 320, 512, 4096}) {
    for (int64_t position : {edge - 1, edge, edge + 1}) {
      if (position < tokens) positions.push_back(position);
    }
  }
  return positions;
}

TEST_F(CpuLatentPrefillTest, MatchesFloat64) {
  Random random(1);
  for (const LatentDims& dims : kLatentDims) {
    const auto w = RandomProjection(dims, random);
    const auto projection = Project(dims, w);
    for (int64_t tokens : {int64_t{1}, int64_t{63}, int64_t{64}, int64_t{65},
                           random.Integer(66, 600), int64_t{600}}) {
      const CachedLatents latents(dims, tokens, random);
      const auto q = random.NormalVector(tokens * dims.QueryWidth());
      const LatentReference reference(dims, w, latents.dense(), DefaultScale(dims));
      const auto o = PrefillRange(*projection, q, latents, 0, tokens, 2);
      EXPECT_LE(ErrorAt(reference, dims, q, o, PositionsToCheck(tokens, random)), 3e-6)
          << tokens << " tokens, rank " << dims.rank << ", heads " << dims.heads;
    }
  }
}

TEST_F(CpuLatentPrefillTest, MatchesFloat64AtPageEdges) {
  Random random(2);
  const auto w = RandomProjection(kOddDims, random);
  const auto projection = Project(kOddDims, w);
  const CachedLatents latents(kOddDims, 4097, random);
  const auto q = random.NormalVector(4097 * kOddDims.QueryWidth());
  const LatentReference reference(kOddDims, w, latents.dense(), DefaultScale(kOddDims));
  std::vector<float> whole;
  for (int64_t tokens : {4095, 4096, 4097}) {
    auto o = PrefillRange(*projection, q, latents, 0, tokens, 2);
    EXPECT_LE(ErrorAt(reference, kOddDims, q, o, PositionsToCheck(tokens, random)), 3e-6);
    if (!whole.empty()) {
      EXPECT_EQ(ByteDifference(Slice(o, 0, tokens - 1, kOddDims.OutputWidth()), whole), "");
    }
    whole = std::move(o);
  }
}

TEST_F(CpuLatentPrefillTest, ScaleIsTheShapesIfGiven) {
  Random random(3);
  const auto w = RandomProjection(kOddDims, random);
  LatentShape shape = ShapeOf(kOddDims);
  shape.scale = 0.7f;
  std::unique_ptr<LatentProjection> projection;
  ASSERT_STATUS_OK(backend_->NewLatentProjection(w.data(), DType::kF32, shape, &projection));
  EXPECT_EQ(projection->shape().scale, 0.7f);
  const CachedLatents latents(kOddDims, 70, random);
  const auto q = random.NormalVector(70 * kOddDims.QueryWidth());
  const LatentReference reference(kOddDims, w, latents.dense(), 0.7f);
  const int64_t positions[] = {0, 30, 69};
  const auto o = PrefillRange(*projection, q, latents, 0, 70);
  EXPECT_LE(ErrorAt(reference, kOddDims, q, o, positions), 3e-6);
}

TEST_F(CpuLatentPrefillTest, CutsIntoRangesDoNotShow) {
  Random random(4);
  for (const LatentDims& dims : kLatentDims) {
    const int64_t tokens = dims.rank > 100 ? 450 : 1000;
    const auto projection = Project(dims, RandomProjection(dims, random));
    const CachedLatents latents(dims, tokens, random);
    const auto q = random.NormalVector(tokens * dims.QueryWidth());
    const auto whole = PrefillRange(*projection, q, latents, 0, tokens);
    for (int trial = 0; trial < 3; ++trial) {
      std::vector<float> pieces;
      for (int64_t first = 0; first < tokens;) {
        const int64_t rows = std::min(tokens - first, 64 * random.Integer(1, trial == 0 ? 1 : 5));
        const auto piece = PrefillRange(*projection, q, latents, first, rows, 1 + trial);
        pieces.insert(pieces.end(), piece.begin(), piece.end());
        first += rows;
      }
      EXPECT_EQ(ByteDifference(pieces, whole), "") << "rank " << dims.rank;
    }
  }
}

TEST_F(CpuLatentPrefillTest, PackingAndThreadsDoNotShow) {
  Random random(5);
  for (const LatentDims& dims : {kLatentDims[0], kOddDims, kLatentDims[3]}) {
    const auto projection = Project(dims, RandomProjection(dims, random));
    const int64_t lengths[] = {65, 0, 1, 130, 64, 200};
    const int64_t first_tokens[] = {128, 0, 0, 64, 4032, 4096 - 64};
    std::vector<CachedLatents> latents;
    std::vector<LatentSequence> sequences;
    std::vector<float> q;
    std::vector<float> alone;
    for (size_t s = 0; s < std::size(lengths); ++s) {
      latents.emplace_back(dims, first_tokens[s] + lengths[s], random);
      const auto own_q = random.NormalVector(lengths[s] * dims.QueryWidth());
      const LatentSequence sequence[] = {latents.back().At(first_tokens[s])};
      const auto o = Prefill(*projection, own_q, {lengths + s, 1}, sequence, 1);
      q.insert(q.end(), own_q.begin(), own_q.end());
      alone.insert(alone.end(), o.begin(), o.end());
    }
    for (size_t s = 0; s < latents.size(); ++s) sequences.push_back(latents[s].At(first_tokens[s]));
    for (int threads : {1, 2, 3}) {
      const auto o = Prefill(*projection, q, lengths, sequences, threads, threads);
      EXPECT_EQ(ByteDifference(o, alone), "") << threads << " threads";
    }
  }
}

TEST_F(CpuLatentPrefillTest, ChunksDoNotShow) {
  Random random(6);
  const auto projection = Project(kOddDims, RandomProjection(kOddDims, random));
  const auto& ours = dynamic_cast<const cpu::CpuLatentProjection&>(*projection);
  const CachedLatents latents(kOddDims, 1300, random);
  const auto q = random.NormalVector(1300 * kOddDims.QueryWidth());
  const auto expected = PrefillRange(*projection, q, latents, 0, 1300);
  const int64_t offsets[] = {0, 1300};
  const LatentSequence sequences[] = {latents.At(0)};
  for (int64_t chunk_bytes : {int64_t{1}, int64_t{512 * 700}, int64_t{1} << 30}) {
    cpu::ThreadTeam team(2);
    cpu::LaneScratch scratch(team.threads());
    std::vector<float> o(expected.size());
    ASSERT_STATUS_OK(cpu::LatentPrefill({.projection = projection.get(),
                                         .q = {q.data(), DType::kF32, kOddDims.QueryWidth()},
                                         .offsets = offsets,
                                         .sequences = sequences,
                                         .o = {o.data(), DType::kF32, kOddDims.OutputWidth()}},
                                        ours, team, scratch, chunk_bytes));
    EXPECT_EQ(ByteDifference(o, expected), "") << chunk_bytes;
  }
}

// Bits of earlier rows must not know what comes later, and a NaN must stay where it is read.
TEST_F(CpuLatentPrefillTest, NonFiniteLatentsReachLaterRowsOnly) {
  Random random(7);
  const auto projection = Project(kOddDims, RandomProjection(kOddDims, random));
  const CachedLatents clean(kOddDims, 400, random);
  const auto q = random.NormalVector(400 * kOddDims.QueryWidth());
  const auto expected = PrefillRange(*projection, q, clean, 0, 400);
  for (float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (int64_t token : {0, 1, 100, 191, 320, 399}) {
      auto dense = clean.dense();
      dense[static_cast<size_t>(token * kOddDims.LatentWidth() + 3)] = value;
      const CachedLatents bad(kOddDims, dense);
      const auto o = PrefillRange(*projection, q, bad, 0, 400, 2);
      const int64_t width = kOddDims.OutputWidth();
      EXPECT_EQ(ByteDifference(Slice(o, 0, token, width), Slice(expected, 0, token, width)), "");
      for (int64_t row = token; row < 400; ++row) {
        EXPECT_FALSE(test::AllFinite(Slice(o, row, 1, width))) << row;
      }
    }
  }
}

TEST_F(CpuLatentPrefillTest, NonFiniteQueriesStayAlone) {
  Random random(8);
  const auto projection = Project(kOddDims, RandomProjection(kOddDims, random));
  const CachedLatents latents(kOddDims, 300, random);
  auto q = random.NormalVector(300 * kOddDims.QueryWidth());
  const auto clean = PrefillRange(*projection, q, latents, 0, 300);
  q[static_cast<size_t>(290 * kOddDims.QueryWidth() + 1)] = std::numeric_limits<float>::quiet_NaN();
  const auto o = PrefillRange(*projection, q, latents, 0, 300);
  for (int64_t row = 0; row < 300; ++row) {
    const auto actual = Slice(o, row, 1, kOddDims.OutputWidth());
    if (row == 290) {
      EXPECT_FALSE(test::AllFinite(actual));
    } else {
      EXPECT_EQ(ByteDifference(actual, Slice(clean, row, 1, kOddDims.OutputWidth())), "") << row;
    }
  }
}

// Scores of up to 1e30: the softmax picks one key, wherever its tile lies.
TEST_F(CpuLatentPrefillTest, HugeScoresPickOneKey) {
  constexpr LatentDims kDims{1, 2, 0, 2, 2};
  const std::vector<float> w = {1, 0, 0, 0, 1, 0, 0, 1};  // k = (c0, 0), v = c
  const auto projection = Project(kDims, w);
  Random random(9);
  for (float magnitude : {1e4f, 1e15f, -1e30f}) {
    std::vector<float> dense;
    for (int64_t token = 0; token < 700; ++token) {
      dense.push_back(static_cast<float>(random.Integer(-1000, 1000)));
      dense.push_back(static_cast<float>(token));
    }
    const CachedLatents latents(kDims, dense);
    std::vector<float> q;
    for (int64_t token = 0; token < 700; ++token) q.insert(q.end(), {magnitude, 0.0f});
    const auto o = PrefillRange(*projection, q, latents, 0, 700);
    float best = -1e9f;
    for (int64_t token = 0; token < 700; ++token) {
      const float key = dense[static_cast<size_t>(2 * token)] * (magnitude < 0 ? -1.0f : 1.0f);
      best = std::max(best, key);
      EXPECT_EQ(o[static_cast<size_t>(2 * token)] * (magnitude < 0 ? -1.0f : 1.0f), best) << token;
    }
  }
}

}  // namespace
}  // namespace deltafill::kernels
