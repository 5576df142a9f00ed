// A whole service in one process over a toy hybrid: front, scheduler, workers, store. What callers
// see of latents: exact states, shared pieces, shorter hits when a part is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "coordinator/front/handle.h"
#include "tests/client/service_fixture.h"
#include "tests/statestore/store_fixture.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fake_model.h"

namespace deltafill::coordinator {
namespace {

using Toy = deltafill::test::FakeModel;
using deltafill::test::kFakeLatentWidth;
using ::testing::HasSubstr;

constexpr uint64_t kPiece = kLatentPieceTokens;

class LatentServiceTest : public ServiceTest {
 protected:
  void SetUp() override { Start({}); }

  void Start(SchedulerOptions scheduler) {
    deltafill::test::FakeModelOptions options;
    options.layers = 4;
    options.attention_layers = {1, 3};
    options.vocabulary = 256;
    options.on_task = [this](uint32_t) {
      if (slow_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    toy_ = std::make_shared<Toy>(options);
    bytes_ = NewMemoryEngine();
    EngineStoreOptions store_options;
    store_options.sweep_interval = std::chrono::milliseconds(0);
    store_options.log = [](const std::string&) {};
    store_options.clock = clock_;
    store_ = *EngineStore::Open(std::make_unique<deltafill::testing::FaultyEngine>(bytes_),
                                store_options);
    SchedulingOptions scheduling;
    scheduling.scheduler = scheduler;
    scheduling.scheduler.plan.range_tokens = 448;
    scheduling.log = [](const std::string&) {};
    StartService(scheduling);
  }

  void AddWorkers(size_t count, size_t latent_bytes_max = size_t{1} << 30) {
    for (size_t i = 0; i < count; ++i) {
      worker::WorkerSetup setup;
      setup.registry = registry_;
      setup.latent_bytes_max = latent_bytes_max;
      AddWorker(++worker_last_, toy_, std::move(setup));
    }
  }

  std::string LogitBytes(const std::vector<uint32_t>& tokens) const {
    return BytesOf(toy_->Run(tokens).logits);
  }
  static std::string LatentBytes(const std::vector<float>& latents, size_t tokens) {
    return {reinterpret_cast<const char*>(latents.data()),
            tokens * kFakeLatentWidth * sizeof(float)};
  }
  Manifest ManifestOf(const std::string& state) {
    const auto ref = DecodeStateReference(state, "state");
    return *store_->GetManifest("default", ref->state);
  }
  // Waits for what the front gives back after it has answered.
  bool NothingIsLeased(uint64_t parts) {
    return deltafill::test::Eventually([&] {
      EXPECT_TRUE(store_->Sweep().ok());
      return store_->GetStats()->parts == parts;
    });
  }

  const std::shared_ptr<deltafill::testing::FakeClock> clock_ =
      std::make_shared<deltafill::testing::FakeClock>();
  std::shared_ptr<Toy> toy_;
  std::atomic<bool> slow_{false};
  std::shared_ptr<worker::MailboxRegistry> registry_ = std::make_shared<worker::MailboxRegistry>();
  int worker_last_ = 0;
};

TEST_F(LatentServiceTest, AnyNumberOfWorkersGivesTheStateThatIsFetched) {
  const std::vector<uint32_t> tokens = Tokens(9000);
  const Toy::Reference whole = toy_->Run(tokens);
  std::string handle;
  for (size_t worker_count = 1; worker_count <= 3; ++worker_count) {
    AddWorkers(1);
    v1::PrefillRequest request = Whole(tokens, {4000, kPiece, 8999});
    request.set_no_resume(true);
    const PrefillResult result = Prefill(request);
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    EXPECT_EQ(result.logits, LogitBytes(tokens));
    EXPECT_EQ(result.checkpoints.size(), 3u);
    if (!handle.empty()) {
      EXPECT_EQ(result.done.state(), handle);
    }
    handle = result.done.state();
  }
  EXPECT_EQ(store_->GetStats()->determinism_mismatches, 0u);
  // Three states with two parts of their own, two partial pieces, and two whole ones.
  EXPECT_TRUE(NothingIsLeased(3 * 2 + 2 + 2)) << store_->GetStats()->parts;

  v1::FetchStateRequest fetch;
  fetch.set_state(handle);
  FetchResult fetched = Fetch(fetch);
  ASSERT_TRUE(fetched.status.ok()) << fetched.status.error_message();
  EXPECT_EQ(fetched.tensors.at("layers.1.latent"), LatentBytes(whole.latents[0], 8960));
  EXPECT_EQ(fetched.tensors.at("layers.3.latent"), LatentBytes(whole.latents[1], 8960));
  EXPECT_EQ(fetched.tensors.size(), 2u + 2 * 4);
  EXPECT_EQ(fetched.start.tensors(4).name(), "layers.1.latent");
  EXPECT_EQ(fetched.start.tensors(4).shape(0), 8960u);

  fetch.set_position(v1::STATE_POSITION_END);
  fetched = Fetch(fetch);
  ASSERT_TRUE(fetched.status.ok()) << fetched.status.error_message();
  EXPECT_EQ(fetched.tensors.at("layers.3.latent"), LatentBytes(whole.latents[1], 9000));
  EXPECT_EQ(fetched.tensors.at("logits"), LogitBytes(tokens));

  fetch.set_position(v1::STATE_POSITION_BLOCK);
  fetch.add_layers(3);
  fetched = Fetch(fetch);
  ASSERT_TRUE(fetched.status.ok()) << fetched.status.error_message();
  EXPECT_EQ(fetched.tensors.size(), 1u);
  fetch.set_layout("fla");
  fetched = Fetch(fetch);
  EXPECT_EQ(fetched.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(fetched.status.error_message(), HasSubstr("layer 3"));
  fetch.set_layers(0, 2);
  EXPECT_TRUE(Fetch(fetch).status.ok());
}

TEST_F(LatentServiceTest, PrefixesShareWholePieces) {
  AddWorkers(2);
  const std::vector<uint32_t> all = Tokens(13000);
  const std::vector<uint32_t> first(all.begin(), all.begin() + 9000);
  const PrefillResult shorter = Prefill(Whole(first));
  ASSERT_TRUE(shorter.status.ok()) << shorter.status.error_message();
  const PrefillResult longer = Prefill(Whole(all, {10000, 12500}));
  ASSERT_TRUE(longer.status.ok()) << longer.status.error_message();
  EXPECT_EQ(longer.done.cached_tokens(), 8960u);
  EXPECT_EQ(longer.logits, LogitBytes(all));
  const Manifest one = ManifestOf(shorter.done.state());
  const Manifest two = ManifestOf(longer.done.state());
  ASSERT_EQ(one.parts.size(), 2u + 3);
  ASSERT_EQ(two.parts.size(), 2u + 4);
  EXPECT_EQ(one.parts[2], two.parts[2]);
  EXPECT_EQ(one.parts[3], two.parts[3]);
  EXPECT_NE(one.parts[4], two.parts[4]);  // [8192, 8960) and [8192, 12288)
  // Whole pieces: 3. Each of 4 states: two parts and a partial piece.
  EXPECT_TRUE(NothingIsLeased(3 + 4 * 3)) << store_->GetStats()->parts;
  ASSERT_TRUE(store_->Delete("default", one.state).ok());
  v1::StateDescription description;
  ASSERT_TRUE(Get(longer.done.state(), "default", true, &description).ok());
  EXPECT_TRUE(description.verified());
  EXPECT_EQ(description.parts(2).kind(), "latent");
  const PrefillResult again = Prefill(Whole(all));
  EXPECT_EQ(again.done.cached_tokens(), 12992u);
  EXPECT_EQ(again.logits, LogitBytes(all));
}

TEST_F(LatentServiceTest, EveryDamagedPartIsAShorterHitAndHeals) {
  AddWorkers(2);
  const std::vector<uint32_t> tokens = Tokens(9000);
  const PrefillResult stored = Prefill(Whole(tokens, {4000}));
  ASSERT_TRUE(stored.status.ok()) << stored.status.error_message();
  const Manifest manifest = ManifestOf(stored.done.state());
  ASSERT_EQ(manifest.parts.size(), 5u);
  for (const PartRef& part : manifest.parts) {
    SCOPED_TRACE(part.id.ToHex());
    deltafill::testing::FlipLayerByte(bytes_.get(), part.id, 0);
    EXPECT_EQ(Lookup(tokens).boundary(), 3968u);
    const PrefillResult result = Prefill(Whole(tokens));
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    EXPECT_EQ(result.logits, LogitBytes(tokens));
    EXPECT_EQ(result.done.cached_tokens(), 3968u);
    EXPECT_EQ(result.done.state(), stored.done.state());
    EXPECT_EQ(Lookup(tokens).boundary(), 8960u) << "stored anew";
  }
}

TEST_F(LatentServiceTest, EveryPartThatAManifestDoesNotNameIsAShorterHit) {
  AddWorkers(2);
  const std::vector<uint32_t> tokens = Tokens(9000);
  const PrefillResult stored = Prefill(Whole(tokens, {4000}));
  ASSERT_TRUE(stored.status.ok()) << stored.status.error_message();
  const Manifest manifest = ManifestOf(stored.done.state());
  std::vector<PartId> ids;
  for (const PartRef& part : manifest.parts) ids.push_back(part.id);
  ASSERT_TRUE(store_->LeaseParts(ids).ok());
  for (size_t dropped = 0; dropped < manifest.parts.size(); ++dropped) {
    SCOPED_TRACE(dropped);
    ASSERT_TRUE(store_->Delete("default", manifest.state).ok());
    Manifest doctored = manifest;
    doctored.parts.erase(doctored.parts.begin() + static_cast<std::ptrdiff_t>(dropped));
    ASSERT_TRUE(store_->PutManifest(doctored, {}).ok());
    const v1::LookupResponse found = Lookup(tokens);
    EXPECT_EQ(found.boundary(), 3968u);
    EXPECT_THAT(found.miss_reason(), HasSubstr("boundary 8960"));
    v1::FetchStateRequest fetch;
    fetch.set_state(stored.done.state());
    EXPECT_EQ(Fetch(fetch).status.error_code(), grpc::StatusCode::DATA_LOSS);
    // 9000 tokens and one more: the damaged state is not even started from.
    std::vector<uint32_t> more = tokens;
    more.push_back(7);
    const PrefillResult result = Prefill(Whole(more));
    EXPECT_EQ(result.logits, LogitBytes(more));
    EXPECT_LE(result.done.cached_tokens(), 3968u);
  }
}

TEST_F(LatentServiceTest, DecodingSavesTheStateThatPrefillWould) {
  AddWorkers(2);
  const std::vector<uint32_t> tokens = Tokens(kPiece - 6);
  ASSERT_TRUE(Prefill(Whole(tokens, {2000})).status.ok());
  v1::DecodeRequest request;
  request.mutable_prompt()->mutable_tokens()->mutable_ids()->Add(tokens.begin(), tokens.end());
  request.set_max_tokens(150);
  request.set_ignore_eos(true);
  request.set_save_state(true);
  const DecodeResult decoded = Decode(request);
  ASSERT_TRUE(decoded.status.ok()) << decoded.status.error_message();
  ASSERT_EQ(decoded.ids.size(), 150u);
  std::vector<uint32_t> all = tokens;
  all.insert(all.end(), decoded.ids.begin(), decoded.ids.end());
  EXPECT_EQ(Lookup(all).boundary(), 4224u);
  v1::PrefillRequest again = Whole(all);
  again.set_no_resume(true);
  const PrefillResult prefilled = Prefill(again);
  ASSERT_TRUE(prefilled.status.ok()) << prefilled.status.error_message();
  EXPECT_EQ(prefilled.done.state(), decoded.done.state());
  EXPECT_EQ(store_->GetStats()->determinism_mismatches, 0u);

  // Decoding goes on from the saved state; its own state shares the whole piece.
  v1::DecodeRequest on = request;
  on.clear_prompt();
  on.set_state(decoded.done.state());
  const DecodeResult more = Decode(on);
  ASSERT_TRUE(more.status.ok()) << more.status.error_message();
  EXPECT_EQ(more.started.cached_tokens(), 4224u);
  EXPECT_EQ(ManifestOf(more.done.state()).parts[2], ManifestOf(decoded.done.state()).parts[2]);
}

TEST_F(LatentServiceTest, WhatDoesNotFitIsRefusedWithItsSize) {
  const size_t page_bytes = 2 * kPiece * kFakeLatentWidth * sizeof(float);
  AddWorkers(2, 2 * page_bytes);
  const PrefillResult refused = Prefill(Whole(Tokens(9000)));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.status.error_message(), HasSubstr(std::to_string(3 * kPiece) + " tokens"));
  EXPECT_THAT(refused.status.error_message(), HasSubstr(std::to_string(2 * kPiece)));
  const std::vector<uint32_t> fits = Tokens(8000);
  const PrefillResult result = Prefill(Whole(fits));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.logits, LogitBytes(fits));
}

class LatentRecoveryTest : public LatentServiceTest {
 protected:
  void SetUp() override {
    SchedulerOptions scheduler;
    scheduler.recovery_interval_s = 0.001;
    Start(scheduler);
  }
};

TEST_F(LatentRecoveryTest, LosingAWorkerInMidPromptCostsNoBit) {
  AddWorkers(3);
  const std::vector<uint32_t> tokens = Tokens(13000);
  slow_ = true;
  std::atomic<bool> lost{false};
  std::thread killer([&] {
    // About half of the 120 tasks; recovery boundaries and pieces are stored by then.
    while (toy_->tasks_run() < 60 || store_->GetStats()->parts < 4) std::this_thread::yield();
    workers_[1]->Stop();
    lost = true;
    slow_ = false;
  });
  const PrefillResult result = Prefill(Whole(tokens, {5000}));
  killer.join();
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.logits, LogitBytes(tokens));
  EXPECT_TRUE(lost);
  v1::PrefillRequest again = Whole(tokens, {5000});
  again.set_no_resume(true);
  EXPECT_EQ(Prefill(again).done.state(), result.done.state());
  EXPECT_EQ(store_->GetStats()->determinism_mismatches, 0u);
  // What the lost attempt left behind goes with its leases, at the latest when those run out that
  // the lost worker had no time to report: 2 states, 3 whole pieces.
  clock_->Advance(kLeaseDuration + std::chrono::seconds(1));
  EXPECT_TRUE(NothingIsLeased(2 * 3 + 3)) << store_->GetStats()->parts;
}

}  // namespace
}  // namespace deltafill::coordinator
