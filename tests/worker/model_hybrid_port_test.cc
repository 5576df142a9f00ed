// When an attention layer meets its neighbours: its latents are handed on as soon as they are
// there, and those before the range are needed only after that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/testing/relative_error.h"
#include "tests/worker/model_fixture.h"

namespace deltafill::test {
namespace {

using testing::ElementsAre;

constexpr uint32_t kLayer = 0;  // of hybrid_attention_first; layer 1 is KDA
constexpr int64_t kBefore = 128;

// Has garbage where the earlier tokens' latents belong until they are shared, as a worker has
// whose left neighbour is late.
class LatePort final : public BoundaryPort {
 public:
  LatePort(MemoryPort& inner, LatentCache& latents, const LatentCache& source, int64_t tokens)
      : inner_(inner), latents_(latents), source_(source), tokens_(tokens) {}

  absl::StatusOr<const void*> Await(uint32_t layer, PartKind kind) override {
    return inner_.Await(layer, kind);
  }
  void* Outgoing(uint32_t layer, PartKind kind) override { return inner_.Outgoing(layer, kind); }
  absl::Status HandOn(uint32_t layer, PartKind kind) override { return inner_.HandOn(layer, kind); }
  void* Capture(int capture, uint32_t layer, PartKind kind) override {
    return inner_.Capture(capture, layer, kind);
  }
  absl::StatusOr<kernels::LatentSequence> Latents(uint32_t layer) override {
    return inner_.Latents(layer);
  }
  absl::Status ShareLatents(uint32_t layer) override {
    if (fault_at_sharing) return absl::CancelledError("the attempt was aborted");
    own_rows = LatentRows(latents_, layer, kBefore, tokens_);
    std::memcpy(latents_.Pages(layer)[0], source_.Pages(layer)[0],
                static_cast<size_t>(kBefore) * source_.layout().RowBytes());
    return inner_.ShareLatents(layer);
  }
  absl::Status TaskDone(uint32_t layer) override { return inner_.TaskDone(layer); }

  bool fault_at_sharing = false;
  std::vector<float> own_rows;  // as they were when they were handed on

 private:
  MemoryPort& inner_;
  LatentCache& latents_;
  const LatentCache& source_;
  const int64_t tokens_;
};

class HybridPortTest : public testing::Test {
 protected:
  void SetUp() override {
    CopyFixture("hybrid_attention_first", directory_.path() + "/model");
    model_ = LoadOrFail(directory_.path() + "/model");
    ASSERT_NE(model_, nullptr);
    auto lane = model_->NewLane(1, 512);
    ASSERT_TRUE(lane.ok()) << lane.status();
    lane_ = *lane;
    ASSERT_THAT(model_->state_layout().latents.layers, ElementsAre(kLayer));
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Model> model_;
  std::shared_ptr<Lane> lane_;
};

TEST_F(HybridPortTest, LatentsAreHandedOnBeforeEarlierOnesAreNeeded) {
  const auto prefix = RandomTokens(*model_, kBefore, 1);
  const auto tokens = RandomTokens(*model_, 100, 2);
  LatentCache source = NewLatents(*model_);
  const RangeResult before = PrefillRange(*model_, *lane_, prefix, {}, nullptr, &source, 0);
  const RangeResult wanted =
      PrefillRange(*model_, *lane_, tokens, {}, &before.state, &source, kBefore);

  LatentCache late = NewLatents(*model_);
  ASSERT_TRUE(late.Reserve(kBefore + 100).ok());
  std::memset(late.Pages(kLayer)[0], 0xFF,
              static_cast<size_t>(kBefore) * late.layout().RowBytes());  // NaNs
  MemoryPort inner(model_->state_layout(), &before.state, 0);
  inner.use_latents(&late, kBefore);
  LatePort port(inner, late, source, 100);
  const RangeWork range{.tokens = tokens, .captures = {}, .port = &port};
  ASSERT_TRUE(model_->Prefill(*lane_, {&range, 1}).ok());
  EXPECT_EQ(ByteDifference(port.own_rows, LatentRows(source, kLayer, kBefore, 100)), "");
  EXPECT_EQ(inner.outgoing(), wanted.state);
  std::vector<float> logits(static_cast<size_t>(model_->config().vocab_size));
  ASSERT_TRUE(model_->LastLogits(*lane_, logits).ok());
  EXPECT_EQ(ByteDifference(logits, wanted.logits), "");
  std::vector<std::string> calls = inner.calls();
  calls.resize(3);
  EXPECT_THAT(calls, ElementsAre("share 0", "done 0", "hand on 1 tail"));
}

TEST_F(HybridPortTest, CancelAtSharingStopsThePass) {
  const auto tokens = RandomTokens(*model_, 65, 3);
  LatentCache latents = NewLatents(*model_);
  ASSERT_TRUE(latents.Reserve(kBefore + 65).ok());
  MemoryPort inner(model_->state_layout(), nullptr, 0);
  inner.use_latents(&latents, kBefore);
  LatePort port(inner, latents, latents, 65);
  port.fault_at_sharing = true;
  const RangeWork range{.tokens = tokens, .captures = {}, .port = &port};
  EXPECT_EQ(model_->Prefill(*lane_, {&range, 1}).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(inner.calls().empty());
}

TEST_F(HybridPortTest, PortsWithoutLatentsFailThePass) {
  const auto tokens = RandomTokens(*model_, 65, 4);
  MemoryPort port(model_->state_layout(), nullptr, 0);
  const RangeWork range{.tokens = tokens, .captures = {}, .port = &port};
  EXPECT_EQ(model_->Prefill(*lane_, {&range, 1}).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace deltafill::test
