// The mixture of experts on the device, by every path: values against float64 on the same bf16
// numbers, the choice of experts, and a row's bits, which depend on nothing but the row.
#include "tests/gpu/mixture_case.h"

#include <algorithm>
#include <limits>

#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DType;

constexpr MixtureSizes kSizes[] = {{1, 1, 32, 16},    {4, 4, 40, 24},      {16, 3, 136, 72},
                                   {64, 8, 512, 256}, {8, 2, 2304, 1024},  {300, 5, 64, 16},
                                   {40, 32, 64, 32},  {1024, 8, 128, 128}, {3, 1, 64, 200}};

std::span<const float> Rows(std::span<const float> x, int64_t first, int64_t rows, int64_t width) {
  return x.subspan(static_cast<size_t>(first * width), static_cast<size_t>(rows * width));
}

std::string Name(const MixturePath& path, const MixtureReference& m) {
  return path.name + ": " + std::to_string(m.top_k) + " of " + std::to_string(m.experts) +
         ", hidden " + std::to_string(m.hidden) + ", width " + std::to_string(m.width);
}

TEST_F(MixtureTest, Values) {
  Random random(1);
  for (const MixtureSizes& sizes : kSizes) {
    MixtureReference mixture = RandomMixture(sizes, &random);
    const Loaded loaded = Load(mixture);
    for (int variant = 0; variant < 4; ++variant) {
      mixture.renormalize = variant % 2 == 0;
      mixture.biased_weights = variant == 1 || variant == 2;
      if (variant == 3) mixture.bias.clear();
      const int64_t rows = variant == 0 ? 1 : random.Integer(2, sizes.hidden > 500 ? 12 : 90);
      const auto x = Bf16Normal(&random, rows * sizes.hidden);
      const ExpectedRows expected = ExpectRows(mixture, x);
      for (const MixturePath& path : paths_) {
        for (const bool step : {false, true}) {
          const auto y = Run(loaded, path, x, {}, step, variant % 2 * 8);
          ExpectClose(expected, y, Name(path, mixture) + (step ? ", step" : ""));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Rows by the hundred an expert, and y as it was before.
TEST_F(MixtureTest, ManyRowsAreAddedToY) {
  Random random(2);
  const MixtureReference mixture = RandomMixture({16, 4, 320, 192}, &random);
  const Loaded loaded = Load(mixture);
  const auto x = Bf16Normal(&random, 3000 * mixture.hidden);
  const auto before = Bf16Normal(&random, 3000 * mixture.hidden);
  ExpectedRows expected = ExpectRows(mixture, x, 29);
  for (size_t row = 0; row < expected.size(); ++row) {
    for (size_t i = 0; i < expected[row].size(); ++i) {
      expected[row][i] += before[row * static_cast<size_t>(mixture.hidden) + i];
    }
  }
  for (const MixturePath& path : paths_) {
    ExpectClose(expected, Run(loaded, path, x, before), Name(path, mixture));
  }
}

TEST_F(MixtureTest, BitsOfARowDependOnNothingElse) {
  Random random(3);
  constexpr int64_t kRows = 1100;
  const std::vector<std::pair<int64_t, int64_t>> runs = {
      {0, 1}, {0, 64}, {5, 7}, {63, 2}, {64, 65}, {100, 1000}, {17, 300}, {1099, 1}, {0, kRows}};
  for (const MixtureSizes& sizes : {MixtureSizes{16, 3, 136, 72}, {256, 8, 256, 128}}) {
    const MixtureReference mixture = RandomMixture(sizes, &random);
    const Loaded loaded = Load(mixture);
    const auto x = Bf16Normal(&random, kRows * sizes.hidden);
    const auto before = Bf16Normal(&random, kRows * sizes.hidden);
    for (const MixturePath& path : paths_) {
      for (const bool step : {false, true}) {
        const auto all = Run(loaded, path, x, before, step);
        ASSERT_TRUE(AllFinite(all));
        for (const auto& [first, rows] : runs) {
          const auto y = Run(loaded, path, Rows(x, first, rows, sizes.hidden),
                             Rows(before, first, rows, sizes.hidden), step, first % 2 * 16);
          EXPECT_EQ(ByteDifference(y, Rows(all, first, rows, sizes.hidden)), "")
              << Name(path, mixture) << ", rows " << first << " + " << rows;
        }
      }
    }
  }
}

// One expert: every size of its last tile.
TEST_F(MixtureTest, TileSizesDoNotShowInTheBits) {
  Random random(4);
  const MixtureReference mixture = RandomMixture({1, 1, 200, 144}, &random);
  const Loaded loaded = Load(mixture);
  constexpr int64_t kRows = 600;
  const auto x = Bf16Normal(&random, kRows * mixture.hidden);
  const ExpectedRows expected = ExpectRows(mixture, x, 7);
  for (const MixturePath& path : paths_) {
    const auto all = Run(loaded, path, x);
    ExpectClose(expected, all, Name(path, mixture));
    if (!path.tuning.force_portable) {
      EXPECT_EQ(ByteDifference(all, Run(loaded, paths_[0], x)), "") << path.name;
    }
    for (const int64_t rows : {1,   7,   8,   9,   16,  17,  32,  33,  64,  65,  96,  97, 128,
                               129, 160, 161, 192, 193, 224, 225, 255, 256, 257, 511, 513}) {
      const int64_t first = rows % 3;
      const auto y = Run(loaded, path, Rows(x, first, rows, mixture.hidden));
      ASSERT_EQ(ByteDifference(y, Rows(all, first, rows, mixture.hidden)), "")
          << path.name << ", " << rows;
    }
  }
}

TEST_F(MixtureTest, LongCallsAreSeveralPasses) {
  Random random(5);
  const MixtureReference mixture = RandomMixture({32, 8, 64, 32}, &random);
  const Loaded loaded = Load(mixture);
  constexpr int64_t kRows = 40000;  // passes of 16,384
  const auto x = Bf16Normal(&random, kRows * mixture.hidden);
  const auto all = Run(loaded, paths_[0], x);
  ExpectClose(ExpectRows(mixture, x, 101), all, Name(paths_[0], mixture));
  for (const auto& [first, rows] : std::vector<std::pair<int64_t, int64_t>>{
           {16000, 1000}, {16384, 16385}, {39999, 1}, {1, 39999}}) {
    const auto y = Run(loaded, paths_[0], Rows(x, first, rows, mixture.hidden));
    EXPECT_EQ(ByteDifference(y, Rows(all, first, rows, mixture.hidden)), "") << first;
  }
}

TEST_F(MixtureTest, OneExpertMayGetAllRows) {
  Random random(6);
  MixtureReference mixture = RandomMixture({12, 1, 72, 40}, &random);
  std::fill(mixture.bias.begin(), mixture.bias.end(), 0.0f);
  mixture.bias[7] = 10.0f;
  const Loaded loaded = Load(mixture);
  const auto x = Bf16Normal(&random, 1000 * mixture.hidden);
  const ExpectedRows expected = ExpectRows(mixture, x, 3);
  for (const MixturePath& path : paths_) {
    ExpectClose(expected, Run(loaded, path, x), Name(path, mixture) + ", one expert");
  }
}

TEST_F(MixtureTest, TiesGoToTheLowerIndex) {
  Random random(7);
  for (const MixtureSizes& sizes : {MixtureSizes{9, 4, 40, 16}, {200, 4, 40, 16}}) {
    MixtureReference mixture = RandomMixture(sizes, &random);
    std::fill(mixture.router.begin(), mixture.router.end(), 0.0f);
    std::fill(mixture.bias.begin(), mixture.bias.end(), 0.0f);
    mixture.bias[6] = 1.0f;  // 6, then 0, 1, 2
    const Loaded loaded = Load(mixture);
    const auto x = Bf16Normal(&random, 3 * mixture.hidden);
    EXPECT_EQ(mixture.Route(Rows(x, 0, 1, 40)).experts, (std::vector<int64_t>{0, 1, 2, 6}));
    ExpectedRows expected;  // near-ties all, and meant
    for (int64_t row = 0; row < 3; ++row) {
      const auto of_row = Rows(x, row, 1, 40);
      expected.push_back(mixture.Row(of_row, of_row));
    }
    for (const bool step : {false, true}) {
      ExpectClose(expected, Run(loaded, paths_[0], x, {}, step), "ties");
    }
  }
}

// Scores of NaN are chosen and show, in their own rows alone.
TEST_F(MixtureTest, NonFiniteRowsKeepToThemselves) {
  Random random(8);
  const MixtureReference mixture = RandomMixture({16, 3, 136, 72}, &random);
  const Loaded loaded = Load(mixture);
  auto x = Bf16Normal(&random, 500 * mixture.hidden);
  for (const MixturePath& path : paths_) {
    const auto clean = Run(loaded, path, x);
    auto spoilt = x;
    spoilt[70 * 136 + 3] = std::numeric_limits<float>::quiet_NaN();
    spoilt[71 * 136] = std::numeric_limits<float>::infinity();
    const auto y = Run(loaded, path, spoilt);
    for (int64_t row = 0; row < 500; ++row) {
      const auto actual = Rows(y, row, 1, 136);
      if (row == 70 || row == 71) {
        EXPECT_FALSE(AllFinite(actual)) << path.name;
      } else {
        ASSERT_EQ(ByteDifference(actual, Rows(clean, row, 1, 136)), "") << path.name << row;
      }
    }
  }
}

// The lane's operator, also recorded, and a mixture whose table replaces another's.
TEST_F(MixtureTest, LanesAndRecordings) {
  Random random(9);
  const MixtureSizes sizes = {32, 4, 128, 64};
  const MixtureReference mixture = RandomMixture(sizes, &random);
  const MixtureReference other = RandomMixture(sizes, &random);
  const Loaded loaded = Load(mixture), loaded_other = Load(other);
  constexpr int64_t kRows = 5;
  const auto x = Bf16Normal(&random, kRows * sizes.hidden);
  const auto expected = Run(loaded, paths_[0], x, {}, true);
  EXPECT_NE(ByteDifference(Run(loaded_other, paths_[0], x, {}, true), expected), "");
  const BackendBuffer x_device = UploadBf16(x);
  const BackendBuffer y_device(backend_, x.size() * 2);
  kernels::MixtureParams params =
      loaded.Params({x_device.as<void>(), DType::kBF16, sizes.hidden},
                    {y_device.as<void>(), DType::kBF16, sizes.hidden}, kRows);
  params.step = true;
  const auto issue = [&] {
    Must(lane_->FillZero(y_device.as<void>(), y_device.bytes()));
    Must(lane_->MixtureOfExperts(params));
  };
  issue();
  EXPECT_EQ(ByteDifference(ReadBf16(y_device), expected), "");
  std::unique_ptr<kernels::Recording> recording;
  Must(lane_->BeginRecording());
  issue();
  kernels::MixtureParams unknown = params;
  unknown.experts = loaded_other.experts;
  EXPECT_EQ(lane_->MixtureOfExperts(unknown).code(), kernels::StatusCode::kUnsupported);
  Must(lane_->EndRecording(&recording));
  Must(lane_->FillZero(y_device.as<void>(), y_device.bytes()));
  for (int i = 0; i < 3; ++i) {
    Must(lane_->Replay(*recording, {}));
    EXPECT_EQ(ByteDifference(ReadBf16(y_device), expected), "") << i;
  }
  params.rows = 0;
  Must(lane_->MixtureOfExperts(params));
  params.router = nullptr;
  EXPECT_EQ(lane_->MixtureOfExperts(params).code(), kernels::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace deltafill::test
