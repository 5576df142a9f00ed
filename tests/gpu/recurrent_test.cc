// The recurrent step, the segment summary and its fold against the float64 recurrence.
#include "kernels/cuda/recurrent.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/gpu/device_memory.h"
#include "tests/gpu/forward_case.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DeltaRuleShape;
using kernels::DType;
using kernels::GateKind;

std::vector<uint16_t> ToBf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (float x : values) bits.push_back(Bf16Bits(x));
  return bits;
}

// Contiguous device copies of a case's rows.
struct DeviceInputs {
  DeviceMemory q, k, v, f, beta, a_log, dt_bias;
  explicit DeviceInputs(const DeltaRuleRows& r)
      : q(ToBf16(r.q)),
        k(ToBf16(r.k)),
        v(ToBf16(r.v)),
        f(ToBf16(r.f)),
        beta(ToBf16(r.beta)),
        a_log(r.a_log),
        dt_bias(r.dt_bias) {}
  kernels::DeltaRuleInputs View(const DeltaRuleShape& s, const DeltaRuleRows& r) const {
    const int64_t keys = int64_t{s.heads} * s.key_dim;
    return {{q.as<void>(), DType::kBF16, keys},
            {k.as<void>(), DType::kBF16, keys},
            {v.as<void>(), DType::kBF16, int64_t{s.value_heads} * s.value_dim},
            {f.as<void>(), DType::kBF16, int64_t{s.value_heads} * GateWidth(s)},
            {beta.as<void>(), DType::kBF16, s.value_heads},
            r.a_log.empty() ? nullptr : a_log.as<float>(),
            r.dt_bias.empty() ? nullptr : dt_bias.as<float>()};
  }
};

DeltaRuleShape Shape(int key_dim, int value_dim, GateKind gate) {
  DeltaRuleShape shape;
  shape.heads = 2;
  shape.value_heads = 4;
  shape.key_dim = key_dim;
  shape.value_dim = value_dim;
  shape.gate = gate;
  return shape;
}

class RecurrentTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HaveDevice()) GTEST_SKIP() << "no CUDA device";
  }
};

void CheckSteps(const DeltaRuleShape& shape, int64_t batch) {
  Random random(5);
  const DeltaRuleRows rows = RandomRows(shape, batch, -0.2, &random);
  const int64_t size = int64_t{shape.value_heads} * shape.value_dim * shape.key_dim;
  std::vector<std::vector<float>> initial;
  std::vector<DeviceMemory> states;
  std::vector<float*> pointers;
  for (int64_t i = 0; i < batch; ++i) {
    initial.push_back(random.NormalVector(size, 0.3));
    states.emplace_back(initial.back());
    pointers.push_back(states.back().as<float>());
  }
  const DeviceInputs inputs(rows);
  const int64_t width = int64_t{shape.value_heads} * shape.value_dim;
  const DeviceMemory o(batch * width * 2);
  kernels::DeltaRuleStepParams params;
  params.shape = shape;
  params.in = inputs.View(shape, rows);
  params.batch = batch;
  params.states = pointers.data();
  params.o = {o.as<void>(), DType::kBF16, width};
  kernels::cuda::DeviceBuffer buffer;
  const kernels::Status status = kernels::cuda::DeltaRuleStep(params, &buffer, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  CheckCuda(cudaDeviceSynchronize());
  std::vector<float> o_values;
  for (uint16_t bits : o.Read<uint16_t>()) o_values.push_back(FromBf16Bits(bits));
  for (int64_t i = 0; i < batch; ++i) {
    std::vector<double> state(initial[i].begin(), initial[i].end());
    const std::vector<double> expected =
        ReferenceForward(shape, SliceRows(shape, rows, i, 1), &state);
    const std::vector<float> got(o_values.begin() + i * width, o_values.begin() + (i + 1) * width);
    EXPECT_LE(MaxHeadRelativeError(got, expected, 1, shape.value_heads, shape.value_dim), 4e-3);
    EXPECT_LE(RelativeError(states[i].Read<float>(), state), 2e-6);
  }
}

TEST_F(RecurrentTest, Step) {
  for (int key_dim : {32, 64, 128}) {
    for (int value_dim : {32, 64, 128}) {
      CheckSteps(Shape(key_dim, value_dim, GateKind::kChannelSoftplus), 3);
    }
  }
  for (GateKind gate : {GateKind::kNone, GateKind::kScalarSoftplus, GateKind::kChannelLowerBound,
                        GateKind::kScalarPreactivated, GateKind::kChannelPreactivated}) {
    CheckSteps(Shape(128, 128, gate), 2);
  }
}

// So many that a warp has more rows.
TEST_F(RecurrentTest, StepOfManyStates) {
  for (int key_dim : {32, 64, 128}) {
    for (int value_dim : {32, 64, 128}) {
      CheckSteps(Shape(key_dim, value_dim, GateKind::kChannelSoftplus), 130);
    }
  }
}

TEST_F(RecurrentTest, RefusesWhatKernelsCannotRead) {
  DeltaRuleShape shape = Shape(128, 128, GateKind::kNone);
  Random random(10);
  const DeltaRuleRows rows = RandomRows(shape, 1, -0.1, &random);
  const DeviceInputs inputs(rows);
  const int64_t width = int64_t{shape.value_heads} * 128;
  const DeviceMemory state((width * 128 + 1) * 4), o(width * 2);
  float* const misaligned = state.as<float>() + 1;
  kernels::DeltaRuleStepParams step{shape, inputs.View(shape, rows), 1, &misaligned, {}};
  step.o = {o.as<void>(), kernels::DType::kBF16, width};
  kernels::cuda::DeviceBuffer pointers;
  kernels::Status status = kernels::cuda::DeltaRuleStep(step, &pointers, nullptr);
  EXPECT_EQ(status.code(), kernels::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("states[0]"), std::string::npos) << status.message();

  // Without rows too.
  kernels::DeltaRuleSummaryParams summary{shape, {}, 0, state.as<float>(), state.as<float>()};
  summary.shape.heads = 0;
  status = kernels::cuda::DeltaRuleSummary(summary, nullptr);
  EXPECT_NE(status.message().find("shape.heads"), std::string::npos) << status.message();
  summary.shape = shape;
  summary.shape.key_dim = 96;
  status = kernels::cuda::DeltaRuleSummary(summary, nullptr);
  EXPECT_NE(status.message().find("shape.key_dim"), std::string::npos) << status.message();
}

TEST_F(RecurrentTest, SummaryAndFold) {
  for (int key_dim : {32, 64, 128}) {
    for (GateKind gate : {GateKind::kChannelLowerBound, GateKind::kScalarSoftplus}) {
      const DeltaRuleShape shape = Shape(key_dim, 64, gate);
      Random random(9);
      const DeltaRuleRows rows = RandomRows(shape, 150, -0.02, &random);
      const DeviceInputs inputs(rows);
      const int64_t m_size = int64_t{shape.value_heads} * key_dim * key_dim;
      const int64_t b_size = int64_t{shape.value_heads} * 64 * key_dim;
      const DeviceMemory m(m_size * 4), b(b_size * 4), out(b_size * 4);
      kernels::DeltaRuleSummaryParams params{shape, inputs.View(shape, rows), rows.rows,
                                             m.as<float>(), b.as<float>()};
      kernels::Status status = kernels::cuda::DeltaRuleSummary(params, nullptr);
      ASSERT_TRUE(status.ok()) << status.message();
      CheckCuda(cudaDeviceSynchronize());
      std::vector<double> expected_m, expected_b;
      ReferenceSummary(shape, rows, &expected_m, &expected_b);
      EXPECT_LE(RelativeError(m.Read<float>(), expected_m), 5e-6);
      EXPECT_LE(RelativeError(b.Read<float>(), expected_b), 5e-6);

      const std::vector<float> s_in = random.NormalVector(b_size, 0.5);
      const DeviceMemory s(s_in);
      status = kernels::cuda::FoldSummary({shape.value_heads, key_dim, 64, m.as<float>(),
                                           b.as<float>(), s.as<float>(), out.as<float>()},
                                          nullptr);
      ASSERT_TRUE(status.ok()) << status.message();
      CheckCuda(cudaDeviceSynchronize());
      std::vector<double> state(s_in.begin(), s_in.end());
      ReferenceForward(shape, rows, &state);
      EXPECT_LE(RelativeError(out.Read<float>(), state), 5e-6);
    }
  }
}

}  // namespace
}  // namespace deltafill::test
