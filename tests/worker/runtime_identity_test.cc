// Promise 1 with the real model: any number of workers and any range length, cold or resumed,
// decoded or prefilled, gives the same bytes.
#include <gtest/gtest.h>

#include <map>

#include "tests/testing/prompt_outcome.h"
#include "tests/testing/serving_memory.h"
#include "tests/worker/model_fixture.h"
#include "worker/model/init.h"

namespace deltafill::worker {
namespace {

using test::LaneBench;
using test::RandomTokens;
using Outcome = test::PromptOutcome;

class IdentityTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new test::TemporaryDirectory();
    const absl::Status made = InitModel("tiny", 1, directory_->path() + "/tiny");
    ASSERT_TRUE(made.ok()) << made;
    model_ = Load(test::TestsUseDevice());
    ASSERT_NE(model_, nullptr);
  }
  static Model* Load(bool on_device) {
    std::shared_ptr<kernels::Backend> backend =
        on_device ? test::NewFakeDevice() : test::MakeCpuBackend();
    auto model = LoadModel(directory_->path() + "/tiny", std::move(backend));
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? model->release() : nullptr;
  }
  static void TearDownTestSuite() {
    delete model_;
    delete directory_;
  }

  IdentityTest() : store_(NewMemoryStore({})) {}

  void MakeWorkers(size_t count) {
    workers_.clear();
    auto registry = std::make_shared<MailboxRegistry>();
    for (size_t i = 0; i < count; ++i) {
      workers_.push_back(
          std::make_unique<LaneBench>(model_, store_.get(), registry, static_cast<uint32_t>(i)));
      workers_.back()->MakePrefill({1, 1024, size_t{256} << 20});
    }
  }

  Outcome Collect(size_t boundary_count) { return test::Collect(workers_, boundary_count); }

  static test::TemporaryDirectory* directory_;
  static Model* model_;
  std::unique_ptr<StateStore> store_;
  std::vector<std::unique_ptr<LaneBench>> workers_;
};

test::TemporaryDirectory* IdentityTest::directory_ = nullptr;
Model* IdentityTest::model_ = nullptr;

TEST_F(IdentityTest, WorkersRangesAndCheckpointsDoNotShow) {
  const std::vector<uint32_t> tokens = RandomTokens(1, 1000, 256);
  MakeWorkers(1);
  test::RunWavefront(workers_, {1, 1}, tokens, 4096, 64);
  const Outcome reference = Collect(15);
  ASSERT_EQ(reference.boundaries.size(), 15u);
  ASSERT_FALSE(reference.logits.empty());
  for (size_t worker_count = 1; worker_count <= 4; ++worker_count) {
    for (size_t range_tokens : {64u, 192u, 4096u}) {
      for (size_t every : {64u, 256u, 1u << 20}) {
        SCOPED_TRACE(testing::Message() << worker_count << " workers, ranges of " << range_tokens
                                        << ", every " << every);
        MakeWorkers(worker_count);
        test::RunWavefront(workers_, {1, 1}, tokens, range_tokens, every);
        const Outcome outcome = Collect(every == 64 ? 15 : every == 256 ? 4 : 1);
        ASSERT_TRUE(outcome.boundaries.contains(960));
        for (const auto& [boundary, parts] : outcome.boundaries) {
          EXPECT_EQ(parts, reference.boundaries.at(boundary)) << boundary;
        }
        EXPECT_EQ(outcome.logits, reference.logits);
      }
    }
  }
}

TEST_F(IdentityTest, ADeviceGivesTheHostsBytes) {
  const std::vector<uint32_t> tokens = RandomTokens(4, 700, 256);
  std::vector<Outcome> outcomes;
  std::vector<test::SavedAnswer> answers;
  Model* const of_suite = model_;
  for (bool on_device : {false, true}) {
    const std::unique_ptr<Model> model(Load(on_device));
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->backend().is_host_memory(), !on_device);
    model_ = model.get();
    MakeWorkers(2);
    test::RunWavefront(workers_, {1, 1}, tokens, 128, 64);
    outcomes.push_back(Collect(10));
    workers_[0]->MakeDecode({1, 128, 4});
    const int64_t replays_before = test::ReplaysRun();
    const auto answer = test::DecodeAndSave(*workers_[0], test::SavingDecode(tokens, 40));
    ASSERT_TRUE(answer.has_value());
    answers.push_back(*answer);
    // Steps of the same sequences become recordings.
    EXPECT_EQ(test::ReplaysRun() - replays_before, on_device ? 36 : 0);
    workers_.clear();
  }
  model_ = of_suite;
  EXPECT_EQ(outcomes[0].boundaries, outcomes[1].boundaries);
  EXPECT_EQ(outcomes[0].logits, outcomes[1].logits);
  EXPECT_EQ(answers[0].tokens, answers[1].tokens);
  EXPECT_EQ(test::IdsOf(answers[0].saved.parts), test::IdsOf(answers[1].saved.parts));
}

TEST_F(IdentityTest, ResumingExportingAndSavingAfterDecodingAgreeWithPrefill) {
  const std::vector<uint32_t> tokens = RandomTokens(2, 300, 256);
  MakeWorkers(1);
  LaneBench& worker = *workers_[0];
  worker.MakeDecode({1, 128, 4});
  const DecodeCommand decode = test::SavingDecode(tokens, 150);
  const auto answer = test::DecodeAndSave(worker, decode);
  ASSERT_TRUE(answer.has_value());
  const std::vector<uint32_t>& all = answer->tokens;
  ASSERT_EQ(all.size(), 450u);
  const BoundaryStored& saved = answer->saved;
  ASSERT_EQ(saved.boundary, 448u);

  test::RunWavefront(workers_, {2, 1}, all, 4096, 64);
  const Outcome prefilled = Collect(7);
  EXPECT_EQ(test::IdsOf(saved.parts), prefilled.boundaries.at(448));

  // The answer again, from every boundary of the prompt.
  for (uint64_t boundary : {64u, 128u, 192u, 256u}) {
    DecodeCommand resumed = decode;
    resumed.attempt = {100 + boundary, 1};
    resumed.first_token = boundary;
    resumed.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(boundary), tokens.end());
    resumed.source = {StateSource::From::kStored, prefilled.boundaries.at(boundary)};
    worker.decode->Run(resumed);
  }
  ASSERT_TRUE(worker.sink.WaitFor<DecodeFinished>(5));
  std::map<uint64_t, std::vector<uint32_t>> answers;
  for (const DecodeToken& token : worker.sink.Of<DecodeToken>()) {
    answers[token.attempt.prompt].push_back(token.id);
  }
  ASSERT_EQ(answers.size(), 5u);
  for (const auto& [prompt, answer] : answers) EXPECT_EQ(answer, answers[1]) << prompt;
  for (const DecodeFinished& finished : worker.sink.Of<DecodeFinished>()) {
    EXPECT_EQ(test::IdsOf(finished.saved.parts), test::IdsOf(saved.parts));
  }

  ExportCommand state_export{{3, 1}, 0, {}, {}, "tenant"};
  state_export.tokens.assign(all.begin(), all.begin() + 256);
  worker.decode->Run(state_export);
  ASSERT_TRUE(worker.sink.WaitFor<ExportReady>());
  std::vector<PartId> exported = test::IdsOf(worker.sink.Of<ExportReady>().front().parts);
  exported.pop_back();  // the logits
  EXPECT_EQ(exported, prefilled.boundaries.at(256));
}

TEST(ServingMemoryTest, WhatIsReservedIsEnough) {
  for (const char* preset : {"tiny", "kimi-linear-tiny"}) {
    test::TemporaryDirectory directory;
    ASSERT_TRUE(InitModel(preset, 1, directory.path() + "/model").ok());
    const auto model = LoadModel(directory.path() + "/model", test::NewFakeDevice());
    ASSERT_TRUE(model.ok()) << model.status();
    const std::unique_ptr<StateStore> store = NewMemoryStore({});
    test::ServeWithinThePlan(**model, kernels::DType::kF32, *store, 2,
                             [&] { return test::HostAllocations((*model)->backend()); });
  }
}

}  // namespace
}  // namespace deltafill::worker
