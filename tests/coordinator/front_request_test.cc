// Validation, checkpoints, model choice and progress: the parts of a request that need no server.
#include <gtest/gtest.h>

#include <cmath>

#include "coordinator/front/checkpoint_request.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/model_choice.h"
#include "coordinator/front/progress_rate.h"
#include "coordinator/front/request_check.h"
#include "proto/prefill.pb.h"
#include "tests/coordinator/front_fake_engine.h"

namespace deltafill::coordinator {
namespace {

void ExpectInvalid(const absl::Status& status, const std::string& field, const std::string& limit) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(status.message().find(field), 0u) << status;
  EXPECT_NE(status.message().find(limit), std::string::npos) << status;
}

std::vector<RequestedBoundary> Merge(std::vector<uint64_t> at, uint64_t every, uint64_t tokens) {
  const auto merged = MergeCheckpoints(at, every, tokens);
  EXPECT_TRUE(merged.ok()) << merged.status();
  return merged.ok() ? *merged : std::vector<RequestedBoundary>();
}

TEST(MergeCheckpoints, FloorsAndMerges) {
  using R = std::vector<RequestedBoundary>;
  EXPECT_EQ(Merge({}, 0, 100), R{});
  EXPECT_EQ(Merge({1, 63}, 0, 100), R{}) << "boundary 0 needs no state";
  EXPECT_EQ(Merge({64, 65, 100, 128}, 0, 128), (R{{64, 100}, {128, 128}}));
  EXPECT_EQ(Merge({}, 100, 350), (R{{64, 100}, {192, 200}, {256, 300}}));
  EXPECT_EQ(Merge({}, 64, 256), (R{{64, 64}, {128, 128}, {192, 192}, {256, 256}}));
  EXPECT_EQ(Merge({70, 199}, 100, 250), (R{{64, 100}, {192, 200}}));
  EXPECT_EQ(Merge({}, UINT64_MAX, 250), R{});
  EXPECT_EQ(Merge({}, 64, uint64_t{64} * kCheckpointsMax).size(), kCheckpointsMax);
}

TEST(MergeCheckpoints, NamesFieldAndLimit) {
  const auto status = [](std::vector<uint64_t> at, uint64_t every, uint64_t tokens) {
    return MergeCheckpoints(at, every, tokens).status();
  };
  ExpectInvalid(status({0}, 0, 100), "checkpoint_at[0]", "1 to 100");
  ExpectInvalid(status({101}, 0, 100), "checkpoint_at[0]", "1 to 100");
  ExpectInvalid(status({64, 64}, 0, 100), "checkpoint_at[1]", "ascend");
  ExpectInvalid(status({90, 70}, 0, 100), "checkpoint_at[1]", "ascend");
  ExpectInvalid(status({}, 63, 100), "checkpoint_every", "64");
  ExpectInvalid(status({}, 64, 64 * (kCheckpointsMax + 1)), "checkpoint_every", "4096");
  std::vector<uint64_t> many(kCheckpointsMax + 1);
  for (size_t i = 0; i < many.size(); ++i) many[i] = i + 1;
  ExpectInvalid(status(many, 0, 100000), "checkpoint_at", "4096");
  many.resize(4000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = 64 * (i + 1);
  ExpectInvalid(status(many, 1000, 4'000'000), "checkpoint_at and checkpoint_every", "4096");
}

v1::PrefillRequest PrefillOf(int tokens) {
  v1::PrefillRequest request;
  for (int i = 0; i < tokens; ++i) request.mutable_prompt()->mutable_tokens()->add_ids(1);
  return request;
}

TEST(RequestCheck, Prefill) {
  EXPECT_TRUE(CheckPrefillRequest(PrefillOf(1)).ok());
  ExpectInvalid(CheckPrefillRequest(PrefillOf(0)), "prompt", "at least 1");
  ExpectInvalid(CheckPrefillRequest({}), "prompt", "at least 1");
  v1::PrefillRequest request = PrefillOf(1);
  request.set_model(std::string(257, 'm'));
  ExpectInvalid(CheckPrefillRequest(request), "model", "256");
  request = PrefillOf(1);
  request.set_exactness(static_cast<v1::Exactness>(9));
  ExpectInvalid(CheckPrefillRequest(request), "exactness", "9");
  request = PrefillOf(1);
  request.set_schedule(static_cast<v1::Schedule>(9));
  ExpectInvalid(CheckPrefillRequest(request), "schedule", "9");
  request = PrefillOf(0);
  request.mutable_prompt()->set_text(std::string(kPromptTextBytesMax + 1, 'x'));
  ExpectInvalid(CheckPrefillRequest(request), "prompt.text", "16777216");
  request = PrefillOf(0);
  request.mutable_prompt()->mutable_tokens()->mutable_ids()->Resize(kPromptTokensMax + 1, 1);
  ExpectInvalid(CheckPrefillRequest(request), "prompt.tokens", "4194304");
}

TEST(RequestCheck, Decode) {
  v1::DecodeRequest good;
  good.mutable_prompt()->set_text("x");
  good.set_max_tokens(1);
  EXPECT_TRUE(CheckDecodeRequest(good).ok());
  v1::DecodeRequest request = good;
  request.set_max_tokens(0);
  ExpectInvalid(CheckDecodeRequest(request), "max_tokens", "1 to 65536");
  request.set_max_tokens(65537);
  ExpectInvalid(CheckDecodeRequest(request), "max_tokens", "1 to 65536");
  for (double temperature : {-0.1, 100.5, std::nan(""), HUGE_VAL}) {
    request = good;
    request.mutable_sampling()->set_temperature(temperature);
    ExpectInvalid(CheckDecodeRequest(request), "sampling.temperature", "100");
  }
  for (double top_p : {-0.1, 1.01, std::nan("")}) {
    request = good;
    request.mutable_sampling()->set_top_p(top_p);
    ExpectInvalid(CheckDecodeRequest(request), "sampling.top_p", "(0, 1]");
  }
  request = good;
  for (int i = 0; i < 65; ++i) request.add_stop_ids(1);
  ExpectInvalid(CheckDecodeRequest(request), "stop_ids", "64");
  request = good;
  request.clear_prompt();
  ExpectInvalid(CheckDecodeRequest(request), "prompt", "at least 1");
  request.set_state("df1.x");
  EXPECT_TRUE(CheckDecodeRequest(request).ok()) << "a state alone may do";
}

TEST(RequestCheck, FetchAndList) {
  v1::FetchStateRequest fetch;
  fetch.add_layers(2);
  fetch.add_layers(2);
  ExpectInvalid(CheckFetchStateRequest(fetch), "layers[1]", "ascend");
  fetch.clear_layers();
  fetch.set_head_begin(2);
  fetch.set_head_end(2);
  ExpectInvalid(CheckFetchStateRequest(fetch), "head_begin", "2");
  fetch.clear_head_end();
  fetch.set_position(static_cast<v1::StatePosition>(7));
  ExpectInvalid(CheckFetchStateRequest(fetch), "position", "7");
  v1::ListStatesRequest list;
  list.set_limit(1001);
  ExpectInvalid(CheckListStatesRequest(list), "limit", "1000");
  list.set_limit(1000);
  EXPECT_TRUE(CheckListStatesRequest(list).ok());
  list.set_page(std::string(257, 'p'));
  ExpectInvalid(CheckListStatesRequest(list), "page", "256");
}

TEST(RequestCheck, PromptAgainstTheModel) {
  TokenizerShelf shelf;
  ServedModel model = FakeModel();
  v1::Prompt prompt;
  prompt.mutable_tokens()->add_ids(299);
  EXPECT_TRUE(ReadPrompt(prompt, model, shelf).ok());
  prompt.mutable_tokens()->add_ids(300);
  ExpectInvalid(ReadPrompt(prompt, model, shelf).status(), "prompt.tokens.ids[1]", "300");
  prompt.set_text("hello<eos>");
  EXPECT_EQ(ReadPrompt(prompt, model, shelf)->size(), 10u);
  prompt.set_text(std::string(kPromptTokensMax + 1, 'x'));
  ExpectInvalid(ReadPrompt(prompt, model, shelf).status(), "prompt.text", "4194304");
  prompt.set_text("hello");
  model.tokenizer_file = std::make_shared<const std::string>(*model.tokenizer_file);
  EXPECT_TRUE(ReadPrompt(prompt, model, shelf).ok()) << "another worker's copy of the file";
  model.tokenizer_file = std::make_shared<const std::string>("[]");
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(ReadPrompt(prompt, model, shelf).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
  model.tokenizer_kind.clear();
  prompt.set_text("x");
  EXPECT_EQ(ReadPrompt(prompt, model, shelf).status().code(),
            absl::StatusCode::kFailedPrecondition);
  model.position_max = 100;
  EXPECT_TRUE(CheckPositions(100, 0, model).ok());
  ExpectInvalid(CheckPositions(101, 0, model), "prompt", "100");
  ExpectInvalid(CheckPositions(90, 11, model), "prompt", "100");
}

TEST(ModelChoice, ByNameOrTheOnlyOne) {
  EXPECT_EQ(ChooseModel({}, "").status().code(), absl::StatusCode::kUnavailable);
  const std::vector<ServedModel> two{FakeModel("a", 1), FakeModel("b", 2)};
  EXPECT_EQ(ChooseModel(two, "b")->name, "b");
  ExpectInvalid(ChooseModel(two, "").status(), "model", "a, b");
  ExpectInvalid(ChooseModel(two, "c").status(), "model", "a, b");
  const std::vector<ServedModel> numerics{FakeModel("a", 1, "n1"), FakeModel("a", 1, "n2")};
  EXPECT_EQ(ChooseModel(numerics, "")->numerics, "n1");
  const std::vector<ServedModel> weights{FakeModel("a", 1), FakeModel("a", 2)};
  ExpectInvalid(ChooseModel(weights, "a").status(), "model", "different weights");
}

TEST(ModelChoice, OfAState) {
  const std::vector<ServedModel> served{FakeModel("a", 1, "n1"), FakeModel("a", 1, "n2"),
                                        FakeModel("b", 2, "n1")};
  EXPECT_EQ(ModelOfState(served, served[1].fingerprint, "n2", "")->numerics, "n2");
  const auto expect_other = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find("is of model"), std::string::npos);
    EXPECT_NE(status.message().find("served is"), std::string::npos);
  };
  expect_other(ModelOfState(served, served[0].fingerprint, "n3", "").status());
  expect_other(ModelOfState(served, served[0].fingerprint, "n1", "b").status());
  EXPECT_EQ(ModelOfState(served, served[0].fingerprint, "n1", "a")->numerics, "n1");
}

TEST(ProgressRate, SmoothsAndHoldsBack) {
  using std::chrono::milliseconds;
  ProgressRate::Clock::time_point now{};
  ProgressRate rate(1000, 11000, now);
  int reports = 0;
  std::optional<ProgressReport> last;
  for (int i = 1; i <= 100; ++i) {  // 100 tokens each 10 ms
    now += milliseconds(10);
    const auto report = rate.Update(1000 + i * 100, now);
    if (report.has_value()) {
      ++reports;
      last = report;
    }
  }
  EXPECT_GE(reports, 4);
  EXPECT_LE(reports, 6);
  EXPECT_EQ(last->tokens_done, 11000u) << "the end is always reported";
  EXPECT_EQ(last->eta_seconds, 0.0);
  EXPECT_NEAR(last->tokens_per_second, 10000.0, 100.0);
}

TEST(ProgressRate, SurvivesALostWorker) {
  ProgressRate::Clock::time_point now{};
  ProgressRate rate(0, 100000, now);
  now += std::chrono::seconds(1);
  const auto before = rate.Update(50000, now);
  ASSERT_TRUE(before.has_value());
  EXPECT_NEAR(before->eta_seconds, 1.0, 0.01);
  now += std::chrono::seconds(1);
  const auto after = rate.Update(20000, now);
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(after->tokens_done, 20000u);
  EXPECT_EQ(after->eta_seconds, 0.0) << "unknown until the new rate is";
}

}  // namespace
}  // namespace deltafill::coordinator
