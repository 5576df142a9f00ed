#include <algorithm>
#include <optional>

#include "tests/kernels/cpu_backend_test_base.h"
#include "tests/testing/operator_reference.h"
#include "tests/testing/random.h"
#include "tests/testing/relative_error.h"

namespace deltafill::kernels {
namespace {

using test::ByteDifference;
using test::Random;

// One sequence of a packed call.
struct ConvSequence {
  std::vector<float> x;     // [length, channels]
  std::vector<float> tail;  // [channels, 3], or empty for none
};

struct ConvResult {
  std::vector<std::vector<float>> y;      // a sequence
  std::vector<std::vector<float>> tails;  // a sequence
};

class CpuShortConvTest : public CpuBackendTest {
 protected:
  ConvResult Convolve(const std::vector<ConvSequence>& sequences, std::span<const float> weight,
                      int threads, int64_t padding = 0) {
    const int64_t channels = static_cast<int64_t>(weight.size()) / 4;
    std::vector<int64_t> offsets = {0};
    std::vector<float> packed;
    std::vector<const float*> tails_in;
    ConvResult result;
    for (const ConvSequence& sequence : sequences) {
      packed.insert(packed.end(), sequence.x.begin(), sequence.x.end());
      offsets.push_back(static_cast<int64_t>(packed.size()) / channels);
      tails_in.push_back(sequence.tail.empty() ? nullptr : sequence.tail.data());
      result.tails.emplace_back(static_cast<size_t>(channels * 3));
    }
    std::vector<float*> tails_out;
    for (auto& tail : result.tails) tails_out.push_back(tail.data());
    const int64_t rows = offsets.back();
    PlacedRows x(packed, rows, channels, padding, padding);
    PlacedRows y(rows, channels, 1, 2 * padding);
    const Status status = Lane(threads)->ShortConv({.x = x,
                                                    .weight = weight.data(),
                                                    .offsets = offsets,
                                                    .tails_in = tails_in.data(),
                                                    .tails_out = tails_out.data(),
                                                    .y = y,
                                                    .channels = channels});
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(y.SurroundingsIntact());
    const auto dense = y.Dense();
    for (size_t s = 0; s < sequences.size(); ++s) {
      result.y.push_back(Slice(dense, offsets[s], offsets[s + 1] - offsets[s], channels));
    }
    return result;
  }
};

ConvSequence RandomSequence(Random& random, int64_t length, int64_t channels, bool with_tail) {
  return {random.NormalVector(length * channels),
          with_tail ? random.NormalVector(channels * 3) : std::vector<float>()};
}

TEST_F(CpuShortConvTest, PackedSequencesMatchFloat64) {
  Random random(1);
  for (int64_t channels : {1, 8, 15, 16, 33, 128, 700}) {
    const auto weight = random.NormalVector(channels * 4, 0.7);
    std::vector<ConvSequence> sequences;
    for (int64_t length : {0, 1, 2, 3, 4, 0, 31, 32, 33, 64, 65, 130}) {
      sequences.push_back(RandomSequence(random, length, channels, random.Integer(0, 1) == 1));
    }
    const ConvResult result = Convolve(sequences, weight, 3, 2);
    for (size_t s = 0; s < sequences.size(); ++s) {
      const auto& [x, tail] = sequences[s];
      const int64_t rows = static_cast<int64_t>(x.size()) / channels;
      EXPECT_LE(test::RelativeError(result.y[s],
                                    test::ShortConvReference(x, weight, tail, rows, channels)),
                2e-6)
          << "sequence " << s << ", channels " << channels;
      EXPECT_EQ(ByteDifference(result.tails[s], test::ConvTailReference(x, tail, rows, channels)),
                "");
    }
  }
}

// Any sequence alone, among others, at any thread count, or cut in two at any row.
TEST_F(CpuShortConvTest, BitsOfARowDependOnNothingElse) {
  Random random(2);
  for (int64_t channels : {7, 16, 100}) {
    const auto weight = random.NormalVector(channels * 4);
    const ConvSequence whole = RandomSequence(random, 100, channels, true);
    const ConvSequence other = RandomSequence(random, 37, channels, false);
    const ConvResult alone = Convolve({whole}, weight, 1);
    for (int threads = 1; threads <= 4; ++threads) {
      const ConvResult packed = Convolve({other, whole, other}, weight, threads, threads);
      EXPECT_EQ(ByteDifference(packed.y[1], alone.y[0]), "");
      EXPECT_EQ(ByteDifference(packed.tails[1], alone.tails[0]), "");
    }
    for (int64_t cut : {0, 1, 2, 3, 5, 64, 97, 99, 100}) {
      const ConvResult first =
          Convolve({{Slice(whole.x, 0, cut, channels), whole.tail}}, weight, 2);
      const ConvResult second =
          Convolve({{Slice(whole.x, cut, 100 - cut, channels), first.tails[0]}}, weight, 1, 3);
      std::vector<float> joined = first.y[0];
      joined.insert(joined.end(), second.y[0].begin(), second.y[0].end());
      EXPECT_EQ(ByteDifference(joined, alone.y[0]), "") << cut;
      EXPECT_EQ(ByteDifference(second.tails[0], alone.tails[0]), "") << cut;
    }
  }
}

TEST_F(CpuShortConvTest, TailsMayBeUpdatedInPlaceOrLeftOut) {
  Random random(3);
  constexpr int64_t kChannels = 21;
  const auto weight = random.NormalVector(kChannels * 4);
  const std::vector<int64_t> offsets = {0, 2, 2, 7};
  const auto x = random.NormalVector(7 * kChannels);
  std::vector<float> y(x.size());
  auto tail = random.NormalVector(kChannels * 3);
  const auto before = tail;
  const float* const tails_in[] = {tail.data(), nullptr, nullptr};
  float* const tails_out[] = {tail.data(), nullptr, nullptr};
  ASSERT_STATUS_OK(Lane(2)->ShortConv({.x = {x.data(), DType::kF32, kChannels},
                                       .weight = weight.data(),
                                       .offsets = offsets,
                                       .tails_in = tails_in,
                                       .tails_out = tails_out,
                                       .y = {y.data(), DType::kF32, kChannels},
                                       .channels = kChannels}));
  EXPECT_EQ(ByteDifference(tail, test::ConvTailReference(x, before, 2, kChannels)), "");
  const auto expected = Convolve({{Slice(x, 0, 2, kChannels), before}}, weight, 1);
  EXPECT_EQ(ByteDifference(Slice(y, 0, 2, kChannels), expected.y[0]), "");
}

TEST_F(CpuShortConvTest, ConvTailIsTheLastThreeRows) {
  Random random(4);
  constexpr int64_t kChannels = 19;
  const auto x = random.NormalVector(70 * kChannels);
  const auto tail = random.NormalVector(kChannels * 3);
  const auto lane = Lane(1);
  for (int64_t tokens : {0, 1, 2, 3, 4, 64, 70}) {
    for (bool with_tail : {false, true}) {
      auto out = tail;  // in place when there is a tail
      ASSERT_STATUS_OK(lane->ConvTail({.x = {x.data(), DType::kF32, kChannels},
                                       .tokens = tokens,
                                       .tail_in = with_tail ? out.data() : nullptr,
                                       .tail_out = out.data(),
                                       .channels = kChannels}));
      const auto expected = test::ConvTailReference(
          x, with_tail ? std::span<const float>(tail) : std::span<const float>(), tokens,
          kChannels);
      EXPECT_EQ(ByteDifference(out, expected), "") << tokens;
    }
  }
}

TEST_F(CpuShortConvTest, LargeSumsSaturateWithoutNan) {
  const std::vector<float> weight = {1.0f, -1.0f, 1.0f, 1.0f};
  ConvSequence sequence{{1e30f, -1e30f, 1e30f, -1e30f, 200.0f, -200.0f}, {}};
  EXPECT_TRUE(test::AllFinite(Convolve({sequence}, weight, 1).y[0]));
}

}  // namespace
}  // namespace deltafill::kernels
