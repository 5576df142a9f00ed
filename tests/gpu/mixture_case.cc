#include "tests/gpu/mixture_case.h"

#include <algorithm>
#include <limits>

#include "tests/testing/relative_error.h"

namespace deltafill::test {

using kernels::DType;

namespace {

float RoundToBf16(float x) { return FromBf16Bits(ToBf16Bits({&x, 1}))[0]; }

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Rows with `padding` NaNs after each.
std::vector<float> Spread(std::span<const float> rows, int64_t width, int64_t padding) {
  std::vector<float> spread;
  for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(width)) {
    const auto row = rows.subspan(first, static_cast<size_t>(width));
    spread.insert(spread.end(), row.begin(), row.end());
    spread.insert(spread.end(), static_cast<size_t>(padding), kNan);
  }
  return spread;
}

}  // namespace

MixtureReference RandomMixture(const MixtureSizes& sizes, Random* random) {
  MixtureReference m;
  m.experts = sizes.experts;
  m.top_k = sizes.top_k;
  m.hidden = sizes.hidden;
  m.width = sizes.width;
  m.routed_scale = 2.446f;
  m.router = random->NormalVector(sizes.experts * sizes.hidden,
                                  1.0 / std::sqrt(static_cast<double>(sizes.hidden)));
  m.bias = random->NormalVector(sizes.experts, 0.2);
  const double gate_scale = 1.5 / std::sqrt(static_cast<double>(sizes.hidden));
  const double down_scale = 1.0 / std::sqrt(static_cast<double>(sizes.width));
  for (int64_t e = 0; e < sizes.experts; ++e) {
    m.gate_up.push_back(Bf16Normal(random, 2 * sizes.width * sizes.hidden, gate_scale));
    m.down.push_back(Bf16Normal(random, sizes.hidden * sizes.width, down_scale));
  }
  m.round_inner = RoundToBf16;
  return m;
}

ExpectedRows ExpectRows(const MixtureReference& mixture, std::span<const float> x, int64_t step) {
  const size_t hidden = static_cast<size_t>(mixture.hidden), rows = x.size() / hidden;
  ExpectedRows expected(rows);
  size_t ties = 0;
  for (size_t row = 0; row < rows; row += static_cast<size_t>(step)) {
    const auto of_row = x.subspan(row * hidden, hidden);
    if (mixture.Route(of_row).margin < 2e-5) {
      ++ties;
    } else {
      expected[row] = mixture.Row(of_row, of_row);
    }
  }
  EXPECT_LE(ties, rows / static_cast<size_t>(step) / 10);
  return expected;
}

void ExpectClose(const ExpectedRows& expected, std::span<const float> y, const std::string& what) {
  const size_t hidden = y.size() / std::max<size_t>(expected.size(), 1);
  double worst = 0.0;
  for (size_t row = 0; row < expected.size(); ++row) {
    if (expected[row].empty()) continue;
    const double error = RelativeError(y.subspan(row * hidden, hidden), expected[row]);
    worst = std::max(worst, error);
    ASSERT_LE(error, 8e-3) << what << ", row " << row << " of " << expected.size();
  }
  std::printf("%s, %zu rows: worst error %.2e\n", what.c_str(), expected.size(), worst);
}

std::vector<MixturePath> MixturePaths(const kernels::cuda::DeviceTraits& device) {
  std::vector<MixturePath> paths = {{"own", {}}};
  if (device.major == 9 && device.minor == 0) {
    paths.push_back({"portable", {.force_portable = true}});
    paths.push_back({"pairs", {.cluster = 2}});
    paths.push_back({"no pairs", {.cluster = 1}});
  }
  const char* const only = std::getenv("DELTAFILL_TEST_MIXTURE_PATH");
  if (only != nullptr) std::erase_if(paths, [&](const auto& path) { return path.name != only; });
  return paths;
}

kernels::MixtureParams MixtureTest::Loaded::Params(const kernels::ConstRows& x,
                                                   const kernels::MutableRows& y,
                                                   int64_t rows) const {
  const MixtureReference& m = *reference;
  return {.shape = {.experts = static_cast<int>(m.experts),
                    .top_k = static_cast<int>(m.top_k),
                    .hidden = m.hidden,
                    .expert_width = m.width,
                    .renormalize = m.renormalize,
                    .biased_weights = m.biased_weights,
                    .routed_scale = static_cast<float>(m.routed_scale)},
          .x = x,
          .router = router->as<float>(),
          .correction_bias = m.bias.empty() ? nullptr : bias->as<float>(),
          .experts = experts,
          .y = y,
          .rows = rows};
}

void MixtureTest::SetUp() {
  CudaBackendTest::SetUp();
  if (backend_ == nullptr) return;
  Must(kernels::cuda::SelectDevice(0));
  Must(kernels::cuda::ReadDeviceTraits(&device_));
  Must(stream_.Create());
  paths_ = MixturePaths(device_);
}

MixtureTest::Loaded MixtureTest::Load(const MixtureReference& mixture) {
  Loaded loaded;
  loaded.reference = &mixture;
  for (size_t e = 0; e < mixture.gate_up.size(); ++e) {
    loaded.matrices.push_back(NewWeight(mixture.gate_up[e], 2 * mixture.width, mixture.hidden));
    loaded.matrices.push_back(NewWeight(mixture.down[e], mixture.hidden, mixture.width));
    loaded.experts.push_back({loaded.matrices[2 * e].get(), loaded.matrices[2 * e + 1].get()});
  }
  loaded.router = std::make_unique<BackendBuffer>(Upload(mixture.router));
  if (!mixture.bias.empty()) loaded.bias = std::make_unique<BackendBuffer>(Upload(mixture.bias));
  return loaded;
}

std::vector<float> MixtureTest::Run(const Loaded& loaded, const MixturePath& path,
                                    std::span<const float> x, std::span<const float> before,
                                    bool step, int64_t padding) {
  const int64_t hidden = loaded.reference->hidden, stride = hidden + padding;
  const int64_t rows = static_cast<int64_t>(x.size()) / hidden;
  const std::vector<float> zeros(x.size(), 0.0f);
  const BackendBuffer x_device = UploadBf16(Spread(x, hidden, padding));
  const BackendBuffer y_device =
      UploadBf16(Spread(before.empty() ? std::span<const float>(zeros) : before, hidden, padding));
  kernels::MixtureParams params = loaded.Params({x_device.as<void>(), DType::kBF16, stride},
                                                {y_device.as<void>(), DType::kBF16, stride}, rows);
  params.step = step;
  Must(kernels::cuda::MixtureOfExperts(params, device_, path.tuning, true, &workspace_,
                                       stream_.get()));
  Must(stream_.Synchronize());
  const std::vector<float> spread = ReadBf16(y_device);
  std::vector<float> y;
  for (int64_t row = 0; row < rows; ++row) {
    const auto at = spread.begin() + row * stride;
    y.insert(y.end(), at, at + hidden);
    for (int64_t i = hidden; i < stride; ++i) EXPECT_TRUE(std::isnan(at[i])) << row;
  }
  return y;
}

}  // namespace deltafill::test
