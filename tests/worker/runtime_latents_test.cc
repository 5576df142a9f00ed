// Attention layers in the lanes, with the toy model: whatever the workers, ranges and resumes, the
// latents that arrive, are used and are stored are those of the whole prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "tests/testing/eventually.h"
#include "tests/testing/prompt_outcome.h"
#include "worker/runtime/latent_pieces.h"

namespace deltafill::worker {
namespace {

using test::Eventually;
using test::FakeModel;
using test::FakeModelOptions;
using test::LaneBench;
using test::RandomTokens;
using test::StartAt;
using test::WavefrontStart;
using Outcome = test::PromptOutcome;
using ::testing::HasSubstr;

FakeModelOptions Hybrid() {
  FakeModelOptions options;
  options.layers = 5;
  options.attention_layers = {1, 4};
  return options;
}

class LatentsTest : public ::testing::Test {
 protected:
  explicit LatentsTest(FakeModelOptions options = Hybrid())
      : model_(std::move(options)), store_(NewMemoryStore({})) {}

  void MakeWorkers(size_t count, bool remote = false, size_t latent_bytes_max = size_t{1} << 30,
                   size_t capture_bytes_max = size_t{64} << 20) {
    workers_.clear();
    auto registry = std::make_shared<MailboxRegistry>();
    for (size_t i = 0; i < count; ++i) {
      workers_.push_back(std::make_unique<LaneBench>(
          &model_, &store_, registry, static_cast<uint32_t>(i), latent_bytes_max, remote));
      workers_.back()->MakePrefill({1, 4096, capture_bytes_max});
    }
  }

  Outcome Collect(size_t boundary_count, size_t piece_count) {
    return test::Collect(workers_, boundary_count, piece_count);
  }

  void ExpectLatents(const PartId& id, const FakeModel::Reference& whole, uint64_t first,
                     uint64_t count) {
    const absl::StatusOr<Part> part = store_.GetPart(id, {});
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(part->header, LatentHeader(model_.state_layout().latents, first, count));
    const size_t layer_bytes = count * test::kFakeLatentWidth * sizeof(float);
    ASSERT_EQ(part->payload.size(), 2 * layer_bytes);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(0,
                std::memcmp(part->payload.data() + i * layer_bytes,
                            whole.latents[i].data() + first * test::kFakeLatentWidth, layer_bytes))
          << "attention layer " << i << ", tokens from " << first;
    }
  }

  FakeModel model_;
  test::HeldStore store_;
  std::vector<std::unique_ptr<LaneBench>> workers_;
};

TEST_F(LatentsTest, WorkersRangesAndTransportsDoNotShow) {
  const std::vector<uint32_t> tokens = RandomTokens(1, 9000, 97);
  MakeWorkers(1);
  test::RunWavefront(workers_, {1, 1}, tokens, 4096, 1024);
  const Outcome reference = Collect(9, 2);
  const FakeModel::Reference whole = model_.Run(tokens);
  EXPECT_EQ(reference.logits, whole.logits);
  ExpectLatents(reference.pieces.at(4096), whole, 0, 4096);
  ExpectLatents(reference.pieces.at(8192), whole, 4096, 4096);
  ASSERT_EQ(reference.boundaries.at(8960).size(), 3u);
  ExpectLatents(reference.boundaries.at(8960)[2], whole, 8192, 768);
  ASSERT_EQ(reference.boundaries.at(4096).size(), 2u) << "the whole piece is its own part";
  for (size_t worker_count = 1; worker_count <= 4; ++worker_count) {
    for (size_t range_tokens : {192u, 1088u, 4096u}) {
      for (bool remote : {false, true}) {
        SCOPED_TRACE(::testing::Message() << worker_count << " workers, ranges of " << range_tokens
                                          << (remote ? ", gRPC" : ", in process"));
        MakeWorkers(worker_count, remote);
        test::RunWavefront(workers_, {1, 1}, tokens, range_tokens, 1024);
        const Outcome outcome = Collect(9, 2);
        EXPECT_EQ(outcome.boundaries, reference.boundaries);
        EXPECT_EQ(outcome.pieces, reference.pieces);
        EXPECT_EQ(outcome.logits, reference.logits);
        for (const auto& worker : workers_) {
          EXPECT_TRUE(Eventually([&] { return worker->pool.bytes_claimed() == 0; }));
          EXPECT_EQ(worker->latents.size(), 0u);
          EXPECT_EQ(worker->mailbox->bytes_held(), 0u);
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(LatentsTest, ResumesFromAnyBoundary) {
  const std::vector<uint32_t> tokens = RandomTokens(2, 9000, 97);
  MakeWorkers(1);
  test::RunWavefront(workers_, {1, 1}, tokens, 4096, 64);
  const Outcome reference = Collect(140, 2);
  for (uint64_t boundary : {64u, 4032u, 4096u, 4160u, 8192u, 8896u}) {
    for (size_t worker_count : {1u, 3u}) {
      SCOPED_TRACE(::testing::Message() << "from " << boundary << ", " << worker_count);
      MakeWorkers(worker_count);
      test::RunWavefront(workers_, {1, 1}, tokens, 704, 1024, StartAt(reference, boundary));
      const Outcome outcome = Collect((8960 - boundary - 1) / 1024, 2 - boundary / 4096);
      EXPECT_EQ(outcome.logits, reference.logits);
      for (const auto& [end, parts] : outcome.boundaries) {
        EXPECT_EQ(parts, reference.boundaries.at(end)) << end;
      }
      for (const auto& [end, piece] : outcome.pieces) EXPECT_EQ(piece, reference.pieces.at(end));
      if (HasFailure()) return;
    }
  }
}

TEST_F(LatentsTest, SeveralPassesOfOneRange) {
  const std::vector<uint32_t> tokens = RandomTokens(3, 5000, 97);
  MakeWorkers(1);
  test::RunWavefront(workers_, {1, 1}, tokens, 4096, 64);
  const Outcome reference = Collect(78, 1);
  // Room for two states: a range with many boundaries runs in many passes.
  MakeWorkers(3, false, size_t{1} << 30, 1);
  test::RunWavefront(workers_, {1, 1}, tokens, 448, 64);
  const Outcome outcome = Collect(78, 1);
  EXPECT_EQ(outcome.boundaries, reference.boundaries);
  EXPECT_EQ(outcome.pieces, reference.pieces);
  EXPECT_EQ(outcome.logits, reference.logits);
}

TEST_F(LatentsTest, EveryMissingOrWrongPieceIsALostState) {
  const std::vector<uint32_t> tokens = RandomTokens(4, 9000, 97);
  MakeWorkers(1);
  test::RunWavefront(workers_, {1, 1}, tokens, 4096, 1024);
  const Outcome reference = Collect(9, 2);
  const WavefrontStart good = StartAt(reference, 8960);
  ASSERT_EQ(good.latents.size(), 3u);
  std::vector<std::vector<PartId>> bad;
  for (size_t dropped = 0; dropped < 3; ++dropped) {
    bad.push_back(good.latents);
    bad.back().erase(bad.back().begin() + static_cast<std::ptrdiff_t>(dropped));
    bad.push_back(good.latents);
    bad.back()[dropped].bytes[5] ^= 1;  // not in the store
    bad.push_back(good.latents);
    bad.back().push_back(good.latents[dropped]);
    bad.push_back(good.latents);
    bad.back()[dropped] = good.parts[0];  // no latents at all
  }
  bad.push_back(good.latents);
  bad.back()[2] = StartAt(reference, 8704 + 256 - 768).latents.back();  // a shorter boundary's
  uint64_t prompt = 10;
  for (const std::vector<PartId>& latents : bad) {
    SCOPED_TRACE(prompt);
    MakeWorkers(1);
    WavefrontStart start = good;
    start.latents = latents;
    test::RunWavefront(workers_, {++prompt, 1}, tokens, 4096, 1024, start);
    ASSERT_TRUE(workers_[0]->sink.WaitFor<AttemptFailed>());
    const AttemptFailed failed = workers_[0]->sink.Of<AttemptFailed>().front();
    EXPECT_TRUE(failed.stored_state_lost) << failed.status;
    EXPECT_TRUE(workers_[0]->sink.Of<LastLogits>().empty());
    EXPECT_EQ(workers_[0]->latents.size(), 0u);
  }
}

TEST_F(LatentsTest, APromptThatDoesNotFitIsRefusedAtItsFirstRange) {
  const std::vector<uint32_t> tokens = RandomTokens(5, 9000, 97);
  const size_t page_bytes = 2 * kLatentPieceTokens * test::kFakeLatentWidth * sizeof(float);
  MakeWorkers(2, false, 2 * page_bytes);
  test::RunWavefront(workers_, {1, 1}, tokens, 1024, 1024);
  ASSERT_TRUE(workers_[0]->sink.WaitFor<AttemptFailed>());
  const AttemptFailed failed = workers_[0]->sink.Of<AttemptFailed>().front();
  EXPECT_TRUE(absl::IsResourceExhausted(failed.status)) << failed.status;
  EXPECT_THAT(std::string(failed.status.message()), HasSubstr(std::to_string(2 * page_bytes)));
  EXPECT_THAT(std::string(failed.status.message()), HasSubstr(std::to_string(3 * page_bytes)));
  EXPECT_TRUE(workers_[0]->sink.Of<RangeDone>().empty());
  workers_[1]->attempts.Abort({1, 1});
  for (const auto& worker : workers_) {
    EXPECT_TRUE(Eventually([&] { return worker->pool.bytes_claimed() == 0; }));
  }
  // What fits runs, again and again.
  const std::vector<uint32_t> shorter(tokens.begin(), tokens.begin() + 8000);
  for (uint64_t prompt = 2; prompt < 5; ++prompt) {
    test::RunWavefront(workers_, {prompt, 1}, shorter, 1024, 4096);
    ASSERT_TRUE(Eventually([&] {
      size_t logits = 0;
      for (const auto& worker : workers_) logits += worker->sink.Of<LastLogits>().size();
      return logits == prompt - 1;
    }));
    for (const auto& worker : workers_) {
      EXPECT_TRUE(Eventually([&] { return worker->pool.bytes_claimed() == 0; }));
    }
  }
}

// Somebody has the only page: a prompt and a decoding wait for it, in whatever order they get it.
TEST_F(LatentsTest, WorkWaitsForRoomThatOthersGiveBack) {
  const size_t page_bytes = 2 * kLatentPieceTokens * test::kFakeLatentWidth * sizeof(float);
  MakeWorkers(1, false, page_bytes);
  LaneBench& worker = *workers_[0];
  worker.MakeDecode({1, 512, 4});
  std::shared_ptr<SequenceLatents> other = worker.pool.NewSequence();
  ASSERT_TRUE(other->Claim(1).ok());
  const std::vector<uint32_t> tokens = RandomTokens(10, 500, 97);
  DecodeCommand decode;
  decode.attempt = {2, 1};
  decode.tokens = tokens;
  decode.max_tokens = 3;
  decode.tenant = "tenant";
  worker.decode->Run(decode);
  test::RunWavefront(workers_, {1, 1}, tokens, 1024, 512);
  // What was given up does not wait on.
  decode.attempt = {3, 1};
  worker.decode->Run(decode);
  worker.attempts.Abort({3, 1});
  EXPECT_TRUE(worker.sink.Of<DecodeReady>().empty());
  EXPECT_TRUE(worker.sink.Of<RangeDone>().empty());
  other.reset();
  ASSERT_TRUE(worker.sink.WaitFor<RangeDone>());
  ASSERT_TRUE(worker.sink.WaitFor<DecodeFinished>());
  EXPECT_TRUE(Eventually([&] { return worker.decode->idle() && worker.prefill->idle(); }));
  EXPECT_TRUE(worker.sink.Of<AttemptFailed>().empty());
  EXPECT_EQ(worker.sink.Of<DecodeFinished>().size(), 1u);
  EXPECT_TRUE(Eventually([&] { return worker.pool.bytes_claimed() == 0; }));
}

// A prompt that waits at its first range ends with its attempt.
TEST_F(LatentsTest, AbortedWorkDoesNotWaitForRoom) {
  const size_t page_bytes = 2 * kLatentPieceTokens * test::kFakeLatentWidth * sizeof(float);
  MakeWorkers(1, false, page_bytes);
  std::shared_ptr<SequenceLatents> other = workers_[0]->pool.NewSequence();
  ASSERT_TRUE(other->Claim(1).ok());
  test::RunWavefront(workers_, {1, 1}, RandomTokens(11, 500, 97), 1024, 512);
  workers_[0]->attempts.Abort({1, 1});
  EXPECT_TRUE(Eventually([&] { return workers_[0]->prefill->idle(); }));
  EXPECT_TRUE(workers_[0]->sink.Of<RangeDone>().empty());
  EXPECT_TRUE(workers_[0]->sink.Of<AttemptFailed>().empty());
}

TEST_F(LatentsTest, AbortingFreesTheMemoryOnceItsPiecesAreSaved) {
  const std::vector<uint32_t> tokens = RandomTokens(6, 9000, 97);
  MakeWorkers(2);
  store_.Hold();
  test::RunWavefront(workers_, {1, 1}, tokens, 1024, 1024);
  ASSERT_TRUE(workers_[0]->sink.WaitFor<RangeDone>(2));
  for (const auto& worker : workers_) worker->attempts.Abort({1, 1});
  store_.LetGo();
  for (const auto& worker : workers_) {
    EXPECT_TRUE(Eventually([&] { return worker->pool.bytes_claimed() == 0; }));
    EXPECT_TRUE(Eventually([&] { return worker->mailbox->bytes_held() == 0; }));
    EXPECT_TRUE(Eventually([&] { return worker->prefill->idle() && worker->saver.idle(); }));
    EXPECT_EQ(worker->latents.size(), 0u);
    EXPECT_TRUE(worker->sink.Of<AttemptFailed>().empty());
  }
}

class PoisonedLatentsTest : public LatentsTest {
 protected:
  static FakeModelOptions Poisoned() {
    FakeModelOptions options = Hybrid();
    options.poison_token = 96;
    return options;
  }
  PoisonedLatentsTest() : LatentsTest(Poisoned()) {}
};

TEST_F(PoisonedLatentsTest, ANonFiniteLatentIsNotStored) {
  std::vector<uint32_t> tokens = RandomTokens(7, 5000, 96);
  tokens[4000] = 96;
  MakeWorkers(1);
  test::RunWavefront(workers_, {1, 1}, tokens, 4096, 1024);
  ASSERT_TRUE(workers_[0]->sink.WaitFor<AttemptFailed>());
  const AttemptFailed failed = workers_[0]->sink.Of<AttemptFailed>().front();
  EXPECT_TRUE(absl::IsInternal(failed.status)) << failed.status;
  EXPECT_THAT(std::string(failed.status.message()), HasSubstr("layer 1, token 4000"));
  EXPECT_TRUE(workers_[0]->sink.Of<LatentPieceStored>().empty());
}

TEST_F(LatentsTest, DecodingSavesAndExportsWhatPrefillWouldHave) {
  const std::vector<uint32_t> tokens = RandomTokens(8, 4090, 97);
  MakeWorkers(1);
  LaneBench& worker = *workers_[0];
  worker.MakeDecode({1, 512, 4});
  const DecodeCommand decode = test::SavingDecode(tokens, 150);  // over the page's end
  const auto answer = test::DecodeAndSave(worker, decode);
  ASSERT_TRUE(answer.has_value());
  const std::vector<uint32_t>& all = answer->tokens;
  ASSERT_EQ(all.size(), 4240u);
  const BoundaryStored& saved = answer->saved;
  ASSERT_EQ(saved.boundary, 4224u);
  test::RunWavefront(workers_, {2, 1}, all, 4096, 64);
  const Outcome prefilled = Collect(66, 1);
  std::vector<PartId> expected = prefilled.boundaries.at(4224);
  expected.insert(expected.begin() + 2, prefilled.pieces.at(4096));
  EXPECT_EQ(test::IdsOf(saved.parts), expected);

  // The answer again, resumed: only pieces that the start state has not whole are put.
  for (uint64_t boundary : {64u, 4032u, 4096u - 64u}) {
    const WavefrontStart start = StartAt(prefilled, boundary);
    DecodeCommand resumed = decode;
    resumed.attempt = {100 + boundary, 1};
    resumed.first_token = boundary;
    resumed.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(boundary), tokens.end());
    resumed.source = {StateSource::From::kStored, start.parts};
    resumed.stored_latents = start.latents;
    worker.decode->Run(resumed);
    ASSERT_TRUE(Eventually([&] { return worker.decode->idle() && worker.saver.idle(); }));
    EXPECT_EQ(test::IdsOf(worker.sink.Of<DecodeFinished>().back().saved.parts), expected);
  }
  const WavefrontStart at_piece = StartAt(prefilled, 4096);
  ExportCommand state_export{
      {3, 1}, 4096, {}, {StateSource::From::kStored, at_piece.parts}, "tenant", at_piece.latents};
  state_export.tokens.assign(all.begin() + 4096, all.begin() + 4200);
  worker.decode->Run(state_export);
  ASSERT_TRUE(worker.sink.WaitFor<ExportReady>());
  const std::vector<PartReceipt> exported = worker.sink.Of<ExportReady>().front().parts;
  ASSERT_EQ(exported.size(), 4u);  // recurrent, convolution tail, tokens [4096, 4200), logits
  ExpectLatents(exported[2].id, model_.Run({all.data(), 4200}), 4096, 104);
  EXPECT_EQ(exported[3].kind, PartKind::kLogits);
  EXPECT_TRUE(Eventually([&] { return worker.pool.bytes_claimed() == 0; }));
}

TEST_F(LatentsTest, DecodingThatOutgrowsItsMemoryFails) {
  const size_t page_bytes = 2 * kLatentPieceTokens * test::kFakeLatentWidth * sizeof(float);
  MakeWorkers(1, false, page_bytes);
  LaneBench& worker = *workers_[0];
  worker.MakeDecode({1, 512, 4});
  DecodeCommand decode;
  decode.attempt = {1, 1};
  decode.tokens = RandomTokens(9, 4090, 97);
  decode.max_tokens = 100;
  decode.tenant = "tenant";
  worker.decode->Run(decode);
  ASSERT_TRUE(worker.sink.WaitFor<AttemptFailed>());
  EXPECT_TRUE(absl::IsResourceExhausted(worker.sink.Of<AttemptFailed>().front().status));
  EXPECT_EQ(worker.sink.Of<DecodeToken>().size(), 7u);  // positions 4090 to 4096
  EXPECT_TRUE(Eventually([&] { return worker.pool.bytes_claimed() == 0; }));
}

}  // namespace
}  // namespace deltafill::worker
