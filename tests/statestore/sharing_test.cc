// Parts that several states share: bytes are counted once and go with the last reference, and a
// lease taken anew keeps a part from lookup to publication whatever happens to its first state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/statestore/engine_store_fixture.h"

namespace deltafill {
namespace {

using testing::FakeClock;
using testing::FaultyEngine;
using testing::FlipLayerByte;
using ::testing::HasSubstr;
using testing::SampleChain;
using testing::SampleManifest;
using testing::SamplePart;
using testing::StoreState;

constexpr uint64_t kPartBytes = 1136;  // of StoreState's parts
constexpr uint32_t kShared = 1000;     // seed

class SharingTest : public testing::EngineStoreFixture {
 protected:
  // State i has a part of its own and the shared one.
  absl::Status Store(size_t i, bool pinned = false) {
    clock_->Advance(std::chrono::seconds(1));
    return StoreState(store_.get(), "acme", chain_[i], 64 * (i + 1),
                      {static_cast<uint32_t>(i), kShared}, 64, pinned)
        .status();
  }
  PartId SharedPart(size_t i) { return store_->GetManifest("acme", chain_[i])->parts[1].id; }
};

TEST_F(SharingTest, BytesAreCountedOnceAndGoWithTheLastReference) {
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(Store(i).ok());
  const PartId shared = SharedPart(0);
  EXPECT_EQ(SharedPart(2), shared);
  EXPECT_EQ(store_->GetStats()->parts, 4u);
  EXPECT_EQ(store_->GetStats()->bytes, 4 * kPartBytes);
  Reopen(0);  // references are rebuilt from the manifests
  EXPECT_EQ(store_->GetStats()->bytes, 4 * kPartBytes);
  ASSERT_TRUE(store_->Delete("acme", chain_[0]).ok());
  ASSERT_TRUE(store_->Delete("acme", chain_[2]).ok());
  EXPECT_EQ(store_->GetStats()->bytes, 2 * kPartBytes);
  EXPECT_TRUE(store_->GetPart(shared, {}).ok());
  EXPECT_TRUE(IsThere(1));
  ASSERT_TRUE(store_->Delete("acme", chain_[1]).ok());
  EXPECT_EQ(store_->GetStats()->bytes, 0u);
  EXPECT_TRUE(absl::IsNotFound(store_->GetPart(shared, {}).status()));
}

TEST_F(SharingTest, EvictionKeepsWhatAYoungerStateShares) {
  Reopen(4 * kPartBytes);  // three states that share one part
  for (size_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(Store(i).ok()) << i;
    EXPECT_LE(store_->GetStats()->bytes, 4 * kPartBytes);
  }
  EXPECT_EQ(store_->GetStats()->states, 3u);
  EXPECT_EQ(store_->GetStats()->evicted_states, 3u);
  for (size_t i = 3; i < 6; ++i) EXPECT_TRUE(IsThere(i)) << i;
  EXPECT_EQ(store_->FindDeepest("acme", chain_, 64, true)->chain_index, 5u);
  // A pinned state holds the shared part for good; the rest still makes room.
  ASSERT_TRUE(store_->SetPinned("acme", chain_[3], true).ok());
  for (size_t i = 6; i < 9; ++i) ASSERT_TRUE(Store(i).ok()) << i;
  EXPECT_TRUE(IsThere(3));
  EXPECT_TRUE(store_->FindDeepest("acme", std::span(chain_).first(4), 64, true)->manifest);
}

TEST_F(SharingTest, ALeaseTakenAnewOutlivesItsState) {
  ASSERT_TRUE(Store(0).ok());
  const PartId shared = SharedPart(0);
  const auto leased = store_->LeaseParts(std::vector<PartId>{shared});
  ASSERT_TRUE(leased.ok()) << leased.status();
  ASSERT_TRUE(store_->Delete("acme", chain_[0]).ok());
  EXPECT_EQ(store_->GetStats()->parts, 1u);

  // Two boundaries of one prompt name it; the first one's publication ends other leases only.
  for (size_t i = 1; i < 3; ++i) {
    const SamplePart own(static_cast<uint32_t>(i), {0, 1, 2, 5}, 64);
    const PartReceipt receipt = *store_->PutPart("acme", own.header, own.Payloads());
    const Manifest manifest =
        SampleManifest("acme", chain_[i], 64 * (i + 1), {receipt, leased->front()});
    const auto outcome = store_->PutManifest(manifest, std::vector<uint64_t>{receipt.lease_id});
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(*outcome, PutManifestOutcome::kPublished);
    if (i == 1) {
      ASSERT_TRUE(store_->Delete("acme", chain_[1]).ok());
    }
  }
  ASSERT_TRUE(store_->ReleaseLeases(std::vector<uint64_t>{leased->front().lease_id}).ok());
  EXPECT_TRUE(store_->FindDeepest("acme", chain_, 64, true)->manifest);
  EXPECT_EQ(store_->GetStats()->parts, 2u);
}

TEST_F(SharingTest, ADamagedPartIsAMissForEveryStateAndNotLeased) {
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(Store(i).ok());
  const PartId shared = SharedPart(0);
  FlipLayerByte(engine_.get(), shared, 0);
  const FindResult found = *store_->FindDeepest("acme", chain_, 64, true);
  EXPECT_FALSE(found.manifest);
  EXPECT_THAT(found.miss_reason, HasSubstr("boundary 128"));
  EXPECT_THAT(found.miss_reason, HasSubstr("boundary 64"));
  const absl::Status refused = store_->LeaseParts(std::vector<PartId>{shared}).status();
  EXPECT_TRUE(absl::IsNotFound(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is damaged"));
  // Stored again with one of them, it is whole for both.
  ASSERT_TRUE(Store(1).ok());
  EXPECT_EQ(store_->FindDeepest("acme", std::span(chain_).first(1), 64, true)->chain_index, 0u);
  EXPECT_TRUE(IsThere(0));
}

// One thread publishes and deletes the state that a part belongs to, others lease the part and
// publish it under states of their own: a lease that was given holds.
TEST_F(SharingTest, LeasingRacesWithRemoval) {
  ASSERT_TRUE(Store(0).ok());
  const PartId shared = SharedPart(0);
  std::atomic<bool> stop{false};
  std::atomic<int> published{0};
  std::thread remover([&] {
    while (!stop) {
      (void)store_->Delete("acme", chain_[0]);
      EXPECT_TRUE(Store(0).ok());
    }
  });
  std::vector<std::thread> sharers;
  for (size_t t = 1; t <= 2; ++t) {
    sharers.emplace_back([&, t] {
      while (published < 200) {
        const auto leased = store_->LeaseParts(std::vector<PartId>{shared});
        if (!leased.ok()) {
          EXPECT_TRUE(absl::IsNotFound(leased.status())) << leased.status();
          continue;
        }
        const Manifest manifest = SampleManifest("acme", chain_[t], 64 * (t + 1), *leased);
        EXPECT_TRUE(
            store_->PutManifest(manifest, std::vector<uint64_t>{leased->front().lease_id}).ok());
        EXPECT_TRUE(store_->GetPart(shared, {}).ok());
        EXPECT_TRUE(store_->Delete("acme", chain_[t]).ok());
        ++published;
      }
    });
  }
  for (std::thread& sharer : sharers) sharer.join();
  stop = true;
  remover.join();
  ASSERT_TRUE(store_->Delete("acme", chain_[0]).ok());
  EXPECT_EQ(store_->GetStats()->parts, 0u);
  EXPECT_EQ(store_->GetStats()->bytes, 0u);
}

}  // namespace
}  // namespace deltafill
