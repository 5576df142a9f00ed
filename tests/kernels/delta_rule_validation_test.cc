// A broken limit gives an error that names the field and the limit, and no output is touched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/delta_rule.h"
#include "kernels/cpu/thread_team.h"

namespace deltafill::test {
namespace {

using kernels::DeltaRuleForwardParams;
using kernels::DeltaRuleInputs;
using kernels::DeltaRuleShape;
using kernels::DeltaRuleStepParams;
using kernels::DeltaRuleSummaryParams;
using kernels::DType;
using kernels::GateKind;
using kernels::Status;
using kernels::StatusCode;
using kernels::WriteRule;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Valid params over one buffer of zeros: two sequences of 100 and 60 rows, H = 1, HV = 2.
class DeltaRuleValidation : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 160;

  DeltaRuleValidation() : zeros_(kRows * 64), o_(kRows * 64, kUntouched), a_log_(2) {
    shape_.heads = 1;
    shape_.value_heads = 2;
    shape_.key_dim = shape_.value_dim = 32;
    in_.q = in_.k = {zeros_.data(), DType::kF32, 32};
    in_.v = in_.f = {zeros_.data(), DType::kF32, 64};
    in_.beta = {zeros_.data(), DType::kF32, 2};
    in_.a_log = a_log_.data();
    for (auto& state : states_) state.assign(2 * 32 * 32, kUntouched);
  }

  DeltaRuleForwardParams Forward() {
    DeltaRuleForwardParams params;
    params.shape = shape_;
    params.in = in_;
    params.offsets = offsets_;
    params.o = {o_.data(), DType::kF32, 64};
    params.checkpoints = checkpoints_;
    return params;
  }
  DeltaRuleSummaryParams Summary() {
    return {shape_, in_, kRows, states_[0].data(), states_[1].data()};
  }
  DeltaRuleStepParams Step() {
    return {shape_, in_, 2, pointers_.data(), {o_.data(), DType::kF32, 64}};
  }

  void ExpectForwardError(const std::function<void(DeltaRuleForwardParams&)>& breaking,
                          const std::string& field, const std::string& limit,
                          StatusCode code = StatusCode::kInvalidArgument) {
    DeltaRuleForwardParams params = Forward();
    breaking(params);
    ExpectError(kernels::cpu::DeltaRuleForward(params, team_), field, limit, code);
  }
  void ExpectStepError(const std::function<void(DeltaRuleStepParams&)>& breaking,
                       const std::string& field, const std::string& limit) {
    DeltaRuleStepParams params = Step();
    breaking(params);
    ExpectError(kernels::cpu::DeltaRuleStep(params, team_), field, limit,
                StatusCode::kInvalidArgument);
  }
  void ExpectSummaryError(const std::function<void(DeltaRuleSummaryParams&)>& breaking,
                          const std::string& field, const std::string& limit) {
    DeltaRuleSummaryParams params = Summary();
    breaking(params);
    ExpectError(kernels::cpu::DeltaRuleSummary(params, team_), field, limit,
                StatusCode::kInvalidArgument);
  }

  void ExpectError(const Status& status, const std::string& field, const std::string& limit,
                   StatusCode code) {
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), AllOf(HasSubstr(field), HasSubstr(limit)));
    EXPECT_THAT(o_, ::testing::Each(kUntouched));
    for (const auto& state : states_) EXPECT_THAT(state, ::testing::Each(kUntouched));
  }

  static constexpr float kUntouched = 7.0f;
  DeltaRuleShape shape_;
  std::vector<float> zeros_;
  std::vector<float> o_;
  std::vector<float> a_log_;
  std::vector<float> states_[2];
  DeltaRuleInputs in_;
  std::vector<int64_t> offsets_ = {0, 100, 160};
  std::vector<kernels::StateCheckpoint> checkpoints_;
  std::vector<float*> pointers_{states_[0].data(), states_[1].data()};
  kernels::cpu::ThreadTeam team_{1};
};

TEST_F(DeltaRuleValidation, Shape) {
  const auto expect = [&](const std::function<void(DeltaRuleShape&)>& breaking,
                          const std::string& field, const std::string& limit) {
    ExpectForwardError([&](auto& params) { breaking(params.shape); }, field, limit);
    ExpectSummaryError([&](auto& params) { breaking(params.shape); }, field, limit);
    pointers_ = {states_[0].data(), states_[1].data()};
    ExpectStepError([&](auto& params) { breaking(params.shape); }, field, limit);
  };
  expect([](auto& shape) { shape.heads = 0; }, "shape.heads", ">= 1");
  expect([](auto& shape) { shape.heads = 3; }, "shape.value_heads", "multiple of shape.heads");
  expect([](auto& shape) { shape.value_heads = 0; }, "shape.value_heads", "positive");
  expect([](auto& shape) { shape.key_dim = 96; }, "shape.key_dim", "32, 64 or 128");
  expect([](auto& shape) { shape.value_dim = 256; }, "shape.value_dim", "32, 64 or 128");
  expect([](auto& shape) { shape.query_scale = -1.0f; }, "shape.query_scale", ">= 0");
  expect([](auto& shape) { shape.gate = static_cast<GateKind>(9); }, "shape.gate", "GateKind");
  expect([](auto& shape) { shape.write = static_cast<WriteRule>(2); }, "shape.write", "WriteRule");
  for (const float bound : {0.0f, 1.0f, -5.5f, std::numeric_limits<float>::quiet_NaN()}) {
    expect(
        [bound](auto& shape) {
          shape.gate = GateKind::kChannelLowerBound;
          shape.lower_bound = bound;
        },
        "shape.lower_bound", "[-5, 0)");
  }
}

TEST_F(DeltaRuleValidation, Rows) {
  ExpectForwardError([](auto& params) { params.in.q.data = nullptr; }, "in.q.data", "null");
  ExpectForwardError([](auto& params) { params.in.k.row_stride = 31; }, "in.k.row_stride", "32");
  ExpectForwardError([](auto& params) { params.in.v.row_stride = 63; }, "in.v.row_stride", "64");
  ExpectForwardError([](auto& params) { params.in.f.row_stride = 2; }, "in.f.row_stride", "64");
  ExpectForwardError([](auto& params) { params.in.beta.data = nullptr; }, "in.beta.data", "null");
  ExpectForwardError([](auto& params) { params.in.a_log = nullptr; }, "in.a_log", "softplus");
  ExpectForwardError([](auto& params) { params.o.row_stride = 0; }, "o.row_stride", "64");
  ExpectForwardError([](auto& params) { params.in.v.dtype = DType::kBF16; }, "in.v.dtype", "fp32",
                     StatusCode::kUnsupported);
  ExpectForwardError([](auto& params) { params.o.dtype = DType::kF16; }, "o.dtype", "fp32",
                     StatusCode::kUnsupported);
}

TEST_F(DeltaRuleValidation, Offsets) {
  ExpectForwardError([](auto& params) { params.offsets = {}; }, "offsets", "sequences + 1");
  offsets_ = {1, 100, 160};
  ExpectForwardError([](auto&) {}, "offsets[0]", "must be 0");
  offsets_ = {0, 100, 90};
  ExpectForwardError([](auto&) {}, "offsets[2]", ">= offsets[1], 100");
}

TEST_F(DeltaRuleValidation, Checkpoints) {
  float* state = states_[0].data();
  checkpoints_ = {{0, 64, state}, {2, 64, state}};
  ExpectForwardError([](auto&) {}, "checkpoints[1].sequence", "[0, 2)");
  for (const int64_t tokens : {0, 32, 100, 128, -64}) {
    checkpoints_ = {{0, tokens, state}};
    ExpectForwardError([](auto&) {}, "checkpoints[0].tokens", "multiple of 64 in [64, 100]");
  }
  checkpoints_ = {{0, 64, nullptr}};
  ExpectForwardError([](auto&) {}, "checkpoints[0].state", "null");
  offsets_ = {0, 160};
  checkpoints_ = {{0, 128, state}, {0, 64, state}};
  ExpectForwardError([](auto&) {}, "checkpoints[1]", "ascend");
}

TEST_F(DeltaRuleValidation, SummaryAndStep) {
  ExpectSummaryError([](auto& params) { params.rows = -1; }, "rows", ">= 0");
  ExpectSummaryError([](auto& params) { params.m = nullptr; }, "m", "null");
  ExpectSummaryError([](auto& params) { params.b = nullptr; }, "b", "null");
  pointers_ = {states_[0].data(), states_[1].data()};
  ExpectStepError([](auto& params) { params.batch = -1; }, "batch", ">= 0");
  ExpectStepError([](auto& params) { params.states = nullptr; }, "states", "null");
  pointers_[1] = nullptr;
  ExpectStepError([](auto&) {}, "states[1]", "null");
  pointers_[1] = pointers_[0];
  ExpectStepError([](auto&) {}, "states", "distinct");
}

// What a switch makes unused may be absent.
TEST_F(DeltaRuleValidation, UnusedFieldsMayBeAbsent) {
  shape_.gate = GateKind::kNone;
  shape_.write = WriteRule::kLinear;
  in_.f = in_.beta = {};
  in_.a_log = nullptr;
  EXPECT_EQ(kernels::cpu::DeltaRuleForward(Forward(), team_).message(), "");
  in_.q = {};
  EXPECT_EQ(kernels::cpu::DeltaRuleSummary(Summary(), team_).message(), "");
  offsets_ = {0};
  DeltaRuleForwardParams nothing;
  nothing.shape = shape_;
  nothing.offsets = offsets_;
  EXPECT_EQ(kernels::cpu::DeltaRuleForward(nothing, team_).message(), "");
  DeltaRuleStepParams no_steps;
  no_steps.shape = shape_;
  EXPECT_EQ(kernels::cpu::DeltaRuleStep(no_steps, team_).message(), "");
}

}  // namespace
}  // namespace deltafill::test
