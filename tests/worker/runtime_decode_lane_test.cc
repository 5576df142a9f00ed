#include "worker/runtime/decode_lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/testing/eventually.h"
#include "tests/testing/lane_fixture.h"
#include "worker/runtime/sampler.h"

namespace deltafill::worker {
namespace {

using std::chrono::milliseconds;
using test::FakeModel;
using test::FakeModelOptions;
using test::LaneBench;
using test::RandomTokens;

class DecodeLaneTest : public testing::Test {
 protected:
  explicit DecodeLaneTest(FakeModelOptions options = {})
      : model_(std::move(options)), store_(NewMemoryStore({})) {}

  std::unique_ptr<LaneBench> NewWorker(const DecodeLaneOptions& options = {1, 128, 16}) {
    auto worker = std::make_unique<LaneBench>(&model_, &store_, nullptr, 0);
    worker->MakeDecode(options);
    return worker;
  }

  DecodeCommand Decode(uint64_t prompt, size_t tokens, uint32_t max_tokens) {
    DecodeCommand command;
    command.attempt = {prompt, 1};
    command.tokens = RandomTokens(prompt, tokens, 97);
    command.max_tokens = max_tokens;
    command.sampling = {0.8, 0.9, prompt};
    command.tenant = "tenant";
    return command;
  }

  static std::vector<uint32_t> TokensOf(const LaneBench& worker, uint64_t prompt) {
    std::vector<uint32_t> tokens;
    for (const DecodeToken& token : worker.sink.Of<DecodeToken>()) {
      if (token.attempt.prompt == prompt) tokens.push_back(token.id);
    }
    return tokens;
  }

  FakeModel model_;
  test::HeldStore store_;
};

TEST_F(DecodeLaneTest, TokensDoNotDependOnTheBatch) {
  std::vector<DecodeCommand> commands;
  for (uint64_t prompt = 1; prompt <= 9; ++prompt) {
    commands.push_back(Decode(prompt, 1 + 37 * prompt, 10 + 3 * static_cast<uint32_t>(prompt)));
  }
  auto together = NewWorker({1, 128, 4});
  for (const DecodeCommand& command : commands) together->decode->Run(command);
  ASSERT_TRUE(together->sink.WaitFor<DecodeFinished>(9));
  EXPECT_GT(model_.decode_batch_largest(), 1);
  EXPECT_LE(model_.decode_batch_largest(), 4);
  for (const DecodeCommand& command : commands) {
    auto alone = NewWorker({1, 64, 1});
    alone->decode->Run(command);
    ASSERT_TRUE(alone->sink.WaitFor<DecodeFinished>());
    EXPECT_EQ(TokensOf(*alone, command.attempt.prompt),
              TokensOf(*together, command.attempt.prompt));
    EXPECT_EQ(TokensOf(*alone, command.attempt.prompt).size(), command.max_tokens);
    EXPECT_EQ(alone->sink.Of<DecodeReady>().size(), 1u);
    EXPECT_EQ(alone->sink.Of<DecodeFinished>().front().finish_reason, "length");
    EXPECT_FALSE(alone->sink.Of<DecodeFinished>().front().has_saved);
  }
}

// So large that its tokens are chosen on the lane's threads.
class LargeVocabularyTest : public DecodeLaneTest {
 protected:
  LargeVocabularyTest() : DecodeLaneTest({.vocabulary = uint32_t{1} << 16}) {}
};

TEST_F(LargeVocabularyTest, TokensDoNotDependOnTheThreads) {
  const auto run = [&](int threads) {
    auto worker = NewWorker({threads, 128, 4});
    for (uint64_t prompt = 1; prompt <= 6; ++prompt) worker->decode->Run(Decode(prompt, 5, 12));
    EXPECT_TRUE(worker->sink.WaitFor<DecodeFinished>(6));
    std::vector<std::vector<uint32_t>> tokens;
    for (uint64_t prompt = 1; prompt <= 6; ++prompt) tokens.push_back(TokensOf(*worker, prompt));
    return tokens;
  };
  const auto by_one = run(1);
  EXPECT_EQ(by_one.front().size(), 12u);
  EXPECT_EQ(run(3), by_one);
}

TEST_F(DecodeLaneTest, TheFirstTokenComesFromThePromptsLogits) {
  auto worker = NewWorker();
  DecodeCommand command = Decode(1, 200, 1);
  command.sampling = {};
  worker->decode->Run(command);
  ASSERT_TRUE(worker->sink.WaitFor<DecodeFinished>());
  const std::vector<float> logits = model_.Run(command.tokens).logits;
  EXPECT_EQ(TokensOf(*worker, 1), std::vector<uint32_t>{SampleToken(logits, {}, 200)});
}

// What is saved is the state of prompt and answer as prefill gives it, at every place where the
// prompt and the answer can end within a block.
TEST_F(DecodeLaneTest, SavedStatesArePrefillStates) {
  for (size_t prompt_tokens : {1u, 63u, 64u, 65u, 127u, 128u, 129u, 300u}) {
    for (uint32_t max_tokens : {0u, 1u, 2u, 63u, 64u, 65u, 200u}) {
      SCOPED_TRACE(testing::Message() << prompt_tokens << " + " << max_tokens);
      auto worker = NewWorker();
      DecodeCommand command = Decode(1, prompt_tokens, max_tokens);
      command.save_state = true;
      worker->decode->Run(command);
      ASSERT_TRUE(worker->sink.WaitFor<DecodeFinished>());
      const DecodeFinished finished = worker->sink.Of<DecodeFinished>().front();
      std::vector<uint32_t> all = command.tokens;
      for (uint32_t id : TokensOf(*worker, 1)) all.push_back(id);
      ASSERT_EQ(all.size(), prompt_tokens + max_tokens);
      const size_t boundary = (all.size() - 1) / 64 * 64;
      ASSERT_TRUE(finished.has_saved);
      EXPECT_EQ(finished.saved.boundary, boundary);
      if (boundary == 0) {
        EXPECT_TRUE(finished.saved.parts.empty());
        continue;
      }
      all.resize(boundary);
      auto state = test::StoredState(store_, model_, finished.saved.parts, boundary);
      ASSERT_TRUE(state.ok()) << state.status();
      EXPECT_EQ(*state, model_.Run(all).state);
    }
  }
}

TEST_F(DecodeLaneTest, ResumedFromAStoredStateGivesTheSameTokens) {
  auto worker = NewWorker();
  DecodeCommand cold = Decode(1, 150, 30);
  cold.save_state = true;
  worker->decode->Run(cold);
  ASSERT_TRUE(worker->sink.WaitFor<DecodeFinished>());
  const BoundaryStored saved = worker->sink.Of<DecodeFinished>().front().saved;
  EXPECT_EQ(saved.boundary, 128u);
  DecodeCommand resumed = cold;
  resumed.attempt = {2, 1};
  resumed.first_token = 128;
  resumed.tokens.erase(resumed.tokens.begin(), resumed.tokens.begin() + 128);
  resumed.source = {StateSource::From::kStored, test::IdsOf(saved.parts)};
  worker->decode->Run(resumed);
  ASSERT_TRUE(worker->sink.WaitFor<DecodeFinished>(2));
  EXPECT_EQ(TokensOf(*worker, 2), TokensOf(*worker, 1));
  EXPECT_EQ(test::IdsOf(worker->sink.Of<DecodeFinished>().back().saved.parts),
            test::IdsOf(saved.parts));

  resumed.attempt = {3, 1};
  resumed.source.parts.pop_back();
  worker->decode->Run(resumed);
  ASSERT_TRUE(worker->sink.WaitFor<AttemptFailed>());
  EXPECT_TRUE(worker->sink.Of<AttemptFailed>().front().stored_state_lost);
}

// Reads wait while the gate is closed.
class GatedStore final : public test::HeldStore {
 public:
  using HeldStore::HeldStore;
  void SetOpen(bool open) {
    std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  absl::StatusOr<Part> GetPart(const PartId& id, std::span<const uint32_t> layers) override {
    {
      std::unique_lock lock(mutex_);
      ++reads_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
    return HeldStore::GetPart(id, layers);
  }
  int reads() {
    std::lock_guard lock(mutex_);
    return reads_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int reads_ = 0;
};

TEST_F(DecodeLaneTest, TheBatchGoesOnWhileAStartIsLoaded) {
  GatedStore store(NewMemoryStore({}));
  LaneBench worker(&model_, &store, nullptr, 0);
  worker.MakeDecode({1, 128, 2});
  DecodeCommand cold = Decode(1, 150, 30);
  cold.save_state = true;
  worker.decode->Run(cold);
  ASSERT_TRUE(worker.sink.WaitFor<DecodeFinished>());
  DecodeCommand resumed = cold;
  resumed.attempt = {2, 1};
  resumed.first_token = 128;
  resumed.tokens.erase(resumed.tokens.begin(), resumed.tokens.begin() + 128);
  resumed.source = {StateSource::From::kStored,
                    test::IdsOf(worker.sink.Of<DecodeFinished>().front().saved.parts)};
  store.SetOpen(false);
  // Long enough to be still running when the other one's load has begun, and ends during it.
  worker.decode->Run(Decode(3, 150, 400));
  ASSERT_TRUE(worker.sink.WaitFor<DecodeToken>(31));
  worker.decode->Run(resumed);
  ASSERT_TRUE(test::Eventually([&] { return store.reads() > 0; }));
  ASSERT_TRUE(worker.sink.WaitFor<DecodeFinished>(2));
  EXPECT_EQ(TokensOf(worker, 3).size(), 400u);
  EXPECT_EQ(TokensOf(worker, 2).size(), 0u);
  // So does a start that is given up meanwhile, and one more than the batch has room for waits.
  DecodeCommand aborted = resumed;
  aborted.attempt = {4, 1};
  worker.decode->Run(aborted);
  worker.attempts.Abort({4, 1});
  DecodeCommand last = resumed;
  last.attempt = {5, 1};
  worker.decode->Run(last);
  EXPECT_FALSE(worker.decode->idle());
  store.SetOpen(true);
  ASSERT_TRUE(worker.sink.WaitFor<DecodeFinished>(4));
  EXPECT_EQ(TokensOf(worker, 2), TokensOf(worker, 1));
  EXPECT_EQ(TokensOf(worker, 5), TokensOf(worker, 1));
  EXPECT_TRUE(TokensOf(worker, 4).empty());
  EXPECT_TRUE(test::Eventually([&] { return worker.decode->idle(); }));
}

TEST_F(DecodeLaneTest, StopsAtAStopTokenAndEmitsIt) {
  auto worker = NewWorker();
  DecodeCommand command = Decode(1, 20, 50);
  worker->decode->Run(command);
  ASSERT_TRUE(worker->sink.WaitFor<DecodeFinished>());
  std::vector<uint32_t> tokens = TokensOf(*worker, 1);
  command.attempt = {2, 1};
  command.stop_ids = {tokens[20]};
  const size_t first =
      static_cast<size_t>(std::find(tokens.begin(), tokens.end(), tokens[20]) - tokens.begin());
  worker->decode->Run(command);
  ASSERT_TRUE(worker->sink.WaitFor<DecodeFinished>(2));
  tokens.resize(first + 1);
  EXPECT_EQ(TokensOf(*worker, 2), tokens);
  EXPECT_EQ(worker->sink.Of<DecodeFinished>().back().finish_reason, "stop");
}

TEST_F(DecodeLaneTest, ExportsTheExactEnd) {
  for (size_t tokens : {1u, 64u, 65u, 300u}) {
    auto worker = NewWorker();
    ExportCommand command;
    command.attempt = {1, 1};
    command.tokens = RandomTokens(8, tokens, 97);
    command.tenant = "tenant";
    worker->decode->Run(command);
    ASSERT_TRUE(worker->sink.WaitFor<ExportReady>());
    std::vector<PartReceipt> parts = worker->sink.Of<ExportReady>().front().parts;
    ASSERT_EQ(parts.size(), 3u);
    const FakeModel::Reference reference = model_.Run(command.tokens);
    auto logits = store_.GetPart(parts[2].id, {});
    ASSERT_TRUE(logits.ok());
    EXPECT_EQ(logits->header.kind, PartKind::kLogits);
    ASSERT_EQ(logits->payload.size(), reference.logits.size() * sizeof(float));
    EXPECT_EQ(0,
              std::memcmp(logits->payload.data(), reference.logits.data(), logits->payload.size()));
    parts.pop_back();
    EXPECT_EQ(*test::StoredState(store_, model_, parts, tokens), reference.state);
    EXPECT_TRUE(worker->sink.Of<DecodeToken>().empty());
  }
}

TEST_F(DecodeLaneTest, BadCommandsAreRefused) {
  auto worker = NewWorker();
  DecodeCommand command = Decode(1, 20, 5);
  command.tokens[3] = 97;
  worker->decode->Run(command);
  command = Decode(2, 20, 5);
  command.source.from = StateSource::From::kPeer;
  worker->decode->Run(command);
  command = Decode(3, 20, 5);
  command.first_token = 32;
  worker->decode->Run(command);
  ASSERT_TRUE(worker->sink.WaitFor<AttemptFailed>(3));
  for (const AttemptFailed& failed : worker->sink.Of<AttemptFailed>()) {
    EXPECT_TRUE(absl::IsInvalidArgument(failed.status)) << failed.status;
  }
  EXPECT_FALSE(LaneBench(&model_, &store_, nullptr, 0).decode);
  EXPECT_FALSE(DecodeLane::Create(worker->parts, {1, 65, 1}).ok());
  EXPECT_FALSE(DecodeLane::Create(worker->parts, {1, 64, 65}).ok());
}

class SlowDecodeTest : public DecodeLaneTest {
 protected:
  SlowDecodeTest() : DecodeLaneTest(Options()) {}
  static FakeModelOptions Options() {
    FakeModelOptions options;
    options.layer_delay = milliseconds(2);
    options.poison_token = 5;
    return options;
  }
};

TEST_F(SlowDecodeTest, AbortEndsOneAndNotTheOther) {
  auto worker = NewWorker();
  DecodeCommand endless = Decode(1, 20, 1000000);
  endless.sampling = {0, 1, 0};
  endless.tokens.assign(20, 1);
  worker->decode->Run(endless);
  ASSERT_TRUE(worker->sink.WaitFor<DecodeReady>());
  worker->attempts.Abort({1, 1});
  EXPECT_TRUE(test::Eventually([&] { return worker->decode->idle(); }));
  EXPECT_TRUE(worker->sink.Of<DecodeFinished>().empty());
}

TEST_F(SlowDecodeTest, NonFiniteLogitsFailOnlyTheirSequence) {
  auto worker = NewWorker();
  // A prompt whose sampling reaches the poison token: high temperature, many tokens.
  DecodeCommand bad = Decode(1, 20, 100000);
  bad.sampling = {1000.0, 1.0, 3};
  for (uint32_t& token : bad.tokens) token = token == 5 ? 6 : token;
  DecodeCommand good = Decode(2, 20, 5);
  good.stop_ids = {5};  // ends there if it should draw it
  worker->decode->Run(bad);
  worker->decode->Run(good);
  ASSERT_TRUE(worker->sink.WaitFor<AttemptFailed>());
  ASSERT_TRUE(worker->sink.WaitFor<DecodeFinished>());
  EXPECT_EQ(worker->sink.Of<AttemptFailed>().front().attempt.prompt, 1u);
  EXPECT_TRUE(absl::IsInternal(worker->sink.Of<AttemptFailed>().front().status));
  EXPECT_EQ(TokensOf(*worker, 1).back(), 5u);
  EXPECT_EQ(worker->sink.Of<DecodeFinished>().front().attempt.prompt, 2u);
}

}  // namespace
}  // namespace deltafill::worker
