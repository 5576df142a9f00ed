// Leases, eviction, quarantine and write errors, with a clock and an engine of our own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "statestore/records.h"
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

class EngineStoreTest : public testing::EngineStoreFixture {
 protected:
  // Stores one state of one part of its own at boundary 64 * (i + 1); 1,136 bytes encoded.
  absl::StatusOr<PutManifestOutcome> Store(size_t i, bool pinned = false) {
    clock_->Advance(std::chrono::seconds(1));
    return StoreState(store_.get(), "acme", chain_[i], 64 * (i + 1), {static_cast<uint32_t>(i)}, 64,
                      pinned);
  }
  PartId PartOf(size_t i) { return store_->GetManifest("acme", chain_[i])->parts[0].id; }
  FindResult Find(bool verify = true) { return *store_->FindDeepest("acme", chain_, 64, verify); }
};

TEST_F(EngineStoreTest, LeasesRunOut) {
  const SamplePart part(2, {0}, 10);
  const auto kept = store_->PutPart("acme", part.header, part.Payloads());
  const SamplePart other(4, {0}, 10);
  const auto lost = store_->PutPart("acme", other.header, other.Payloads());
  clock_->Advance(kLeaseDuration - std::chrono::seconds(1));
  ASSERT_TRUE(store_->Sweep().ok());
  EXPECT_TRUE(store_->GetPart(lost->id, {}).ok());
  ASSERT_TRUE(store_->RenewLeases(std::vector<uint64_t>{kept->lease_id}).ok());
  clock_->Advance(std::chrono::seconds(2));
  EXPECT_TRUE(absl::IsNotFound(store_->RenewLeases(std::vector<uint64_t>{lost->lease_id})));
  ASSERT_TRUE(store_->Sweep().ok());
  EXPECT_TRUE(store_->GetPart(kept->id, {}).ok());
  EXPECT_TRUE(absl::IsNotFound(store_->GetPart(lost->id, {}).status()));
  EXPECT_EQ(store_->GetStats()->parts, 1u);
  const absl::Status status =
      store_->PutManifest(SampleManifest("acme", chain_[0], 64, {*lost}), {}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
}

TEST_F(EngineStoreTest, PublishedStatesSurviveARestartAndLeasesDoNot) {
  ASSERT_TRUE(Store(0).ok());
  ASSERT_TRUE(Store(3, /*pinned=*/true).ok());
  const TenantSalt salt = *store_->GetTenantSalt("acme");
  const SamplePart loose(50, {0}, 10);
  const auto receipt = store_->PutPart("acme", loose.header, loose.Payloads());
  EXPECT_EQ(store_->GetStats()->parts, 3u);
  const uint64_t bytes = store_->GetStats()->bytes - receipt->bytes;
  Reopen(0);
  EXPECT_EQ(*store_->GetTenantSalt("acme"), salt);
  EXPECT_EQ(store_->GetStats()->states, 2u);
  EXPECT_EQ(store_->GetStats()->parts, 2u);
  EXPECT_EQ(store_->GetStats()->bytes, bytes);
  EXPECT_EQ(Find().chain_index, 3u);
  EXPECT_TRUE(Find().manifest->pinned);
  EXPECT_TRUE(absl::IsNotFound(store_->GetPart(receipt->id, {}).status()));
  ASSERT_TRUE(store_->Delete("acme", chain_[3]).ok());
  EXPECT_EQ(store_->GetStats()->parts, 1u);
  EXPECT_EQ(Find().chain_index, 0u);
}

TEST_F(EngineStoreTest, EvictsWhatWasUsedLongestAgoAndKeepsPins) {
  Reopen(4 * 1136);
  for (size_t i = 0; i < 4; ++i) ASSERT_TRUE(Store(i, /*pinned=*/i == 0).ok());
  ASSERT_EQ(store_->GetStats()->bytes, store_->GetStats()->budget_bytes);
  clock_->Advance(std::chrono::seconds(1));
  EXPECT_EQ(store_->FindDeepest("acme", std::span(chain_).first(2), 64, false)->chain_index, 1u);
  ASSERT_TRUE(Store(4).ok());
  EXPECT_TRUE(IsThere(0)) << "pinned";
  EXPECT_TRUE(IsThere(1)) << "used";
  EXPECT_FALSE(IsThere(2));
  EXPECT_TRUE(IsThere(3));
  ASSERT_TRUE(Store(5).ok());
  EXPECT_FALSE(IsThere(3));
  EXPECT_EQ(store_->GetStats()->evicted_states, 2u);
  EXPECT_LE(store_->GetStats()->bytes, store_->GetStats()->budget_bytes);
  // The order survives a restart.
  Reopen(4 * 1136);
  ASSERT_TRUE(Store(6).ok());
  EXPECT_FALSE(IsThere(1));
  EXPECT_TRUE(IsThere(4));
  EXPECT_TRUE(IsThere(0));
}

TEST_F(EngineStoreTest, APartThatCannotFitEvictsNothing) {
  Reopen(4 * 1136);
  for (size_t i = 0; i < 4; ++i) ASSERT_TRUE(Store(i, /*pinned=*/i > 0).ok());
  const SamplePart huge(2, {0}, 4000);
  EXPECT_TRUE(
      absl::IsResourceExhausted(store_->PutPart("acme", huge.header, huge.Payloads()).status()));
  const SamplePart large(2, {0}, 400);  // more than the one unpinned state gives
  const absl::Status status = store_->PutPart("acme", large.header, large.Payloads()).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(IsThere(0)) << "evicted in vain";
  EXPECT_EQ(store_->GetStats()->parts, 4u);
  ASSERT_TRUE(Store(7).ok());  // fits in its place
  EXPECT_FALSE(IsThere(0));
  ASSERT_TRUE(store_->SetPinned("acme", chain_[1], false).ok());
  ASSERT_TRUE(Store(8).ok());
}

TEST_F(EngineStoreTest, DamageIsAMissWithAReasonUntilTheStateIsStoredAgain) {
  ASSERT_TRUE(Store(1).ok());
  ASSERT_TRUE(Store(5).ok());
  const PartId damaged = PartOf(5);
  FlipLayerByte(engine_.get(), damaged, 2);
  EXPECT_EQ(Find(/*verify=*/false).chain_index, 5u) << "nobody has looked yet";
  FindResult found = Find();
  ASSERT_TRUE(found.manifest);
  EXPECT_EQ(found.chain_index, 1u);
  EXPECT_THAT(found.miss_reason, HasSubstr("boundary 384"));
  EXPECT_THAT(found.miss_reason, HasSubstr("checksum of layer 2"));
  EXPECT_EQ(store_->GetStats()->quarantined_parts, 1u);
  EXPECT_THAT(log_, HasSubstr(damaged.ToHex()));

  for (int restart = 0; restart < 2; ++restart) {
    EXPECT_EQ(Find(/*verify=*/false).chain_index, 1u);
    EXPECT_TRUE(absl::IsDataLoss(store_->GetPart(damaged, {}).status()));
    EXPECT_TRUE(absl::IsDataLoss(store_->GetPart(damaged, std::vector<uint32_t>{0}).status()));
    const absl::Status status = store_->GetManifest("acme", chain_[5]).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("damaged"));
    const ManifestPage page = *store_->List("acme", "", 10);
    ASSERT_EQ(page.manifests.size(), 2u);
    for (const Manifest& manifest : page.manifests) {
      EXPECT_EQ(manifest.damage.empty(), manifest.state == chain_[1]);
    }
    Reopen(0);
  }
  EXPECT_EQ(*Store(5), PutManifestOutcome::kAlreadyThere);
  EXPECT_EQ(Find().chain_index, 5u);
  EXPECT_TRUE(store_->GetPart(damaged, {}).ok());
  EXPECT_EQ(store_->List("acme", "", 10)->manifests[0].damage, "");
}

TEST_F(EngineStoreTest, OnlyTheLayersReadAreJudged) {
  ASSERT_TRUE(Store(5).ok());
  FlipLayerByte(engine_.get(), PartOf(5), 2);
  EXPECT_TRUE(store_->GetPart(PartOf(5), std::vector<uint32_t>{0, 5}).ok());
  EXPECT_TRUE(absl::IsDataLoss(store_->GetPart(PartOf(5), std::vector<uint32_t>{2}).status()));
}

TEST_F(EngineStoreTest, LostLayersRecordsAndManifestsAreMisses) {
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(Store(i).ok());
  WriteSet writes;
  writes.Delete(Family::kParts, LayerKey(PartOf(0), 1));
  writes.Delete(Family::kMeta, PartRecordKey(PartOf(1)));
  writes.PutOwned(Family::kMeta, ManifestKey("acme", chain_[2]), "garbage");
  ASSERT_TRUE(engine_->Write(writes, Durability::kLater).ok());
  for (int restart = 0; restart < 2; ++restart) {
    const FindResult found = Find();
    EXPECT_FALSE(found.manifest);
    EXPECT_THAT(found.miss_reason, HasSubstr("boundary 64"));
    EXPECT_THAT(found.miss_reason, HasSubstr("boundary 128"));
    EXPECT_THAT(found.miss_reason, HasSubstr("missing"));
    Reopen(0);
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(
      store_->PutManifest(SampleManifest("acme", chain_[0], 64, {{PartId{{1}}}}), {}).status()));
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(Store(i).ok()) << i;
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(IsThere(i)) << i;
  EXPECT_EQ(Find().miss_reason, "");
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(store_->Delete("acme", chain_[i]).ok());
  EXPECT_EQ(store_->GetStats()->parts, 0u);
  EXPECT_EQ(store_->GetStats()->bytes, 0u);
}

TEST_F(EngineStoreTest, ADamagedStateIsReplacedByOtherBits) {
  ASSERT_TRUE(Store(5).ok());
  FlipLayerByte(engine_.get(), PartOf(5), 0);
  EXPECT_FALSE(Find().manifest);
  EXPECT_EQ(*StoreState(store_.get(), "acme", chain_[5], 384, {77}),
            PutManifestOutcome::kPublished);
  EXPECT_EQ(store_->GetStats()->determinism_mismatches, 1u);
  EXPECT_THAT(log_, HasSubstr("DETERMINISM MISMATCH"));
  EXPECT_EQ(Find().chain_index, 5u);
  ASSERT_TRUE(store_->Sweep().ok());
  EXPECT_EQ(store_->GetStats()->parts, 1u) << "the damaged part goes";
}

TEST_F(EngineStoreTest, WriteErrorsLeaveEverythingAsItWas) {
  ASSERT_TRUE(Store(0).ok());
  const SamplePart part(2, {0}, 10);
  const auto receipt = store_->PutPart("acme", part.header, part.Payloads());
  FaultyEngine::writes_fail = true;
  EXPECT_TRUE(absl::IsUnavailable(Store(1).status()));
  const Manifest manifest = SampleManifest("acme", chain_[2], 192, {*receipt});
  EXPECT_TRUE(absl::IsUnavailable(
      store_->PutManifest(manifest, std::vector<uint64_t>{receipt->lease_id}).status()));
  EXPECT_TRUE(absl::IsUnavailable(store_->Delete("acme", chain_[0])));
  EXPECT_TRUE(absl::IsUnavailable(store_->SetPinned("acme", chain_[0], true)));
  EXPECT_TRUE(absl::IsUnavailable(store_->GetTenantSalt("new").status()));
  EXPECT_EQ(Find().chain_index, 0u) << "reads go on";
  EXPECT_FALSE(Find().manifest->pinned);
  EXPECT_EQ(store_->GetStats()->states, 1u);
  EXPECT_EQ(store_->GetStats()->parts, 2u);
  FaultyEngine::writes_fail = false;
  EXPECT_EQ(*store_->PutManifest(manifest, std::vector<uint64_t>{receipt->lease_id}),
            PutManifestOutcome::kPublished);
  ASSERT_TRUE(Store(1).ok());
  ASSERT_TRUE(store_->Delete("acme", chain_[0]).ok());
  EXPECT_EQ(store_->GetStats()->parts, 2u);
}

TEST_F(EngineStoreTest, AnUnreadableDiskIsAMissAndNoQuarantine) {
  ASSERT_TRUE(Store(0).ok());
  const PartId part = PartOf(0);
  FaultyEngine::reads_fail = true;
  const FindResult found = Find();
  EXPECT_FALSE(found.manifest);
  EXPECT_THAT(found.miss_reason, HasSubstr("injected read error"));
  EXPECT_TRUE(absl::IsUnavailable(store_->GetPart(part, {}).status()));
  FaultyEngine::reads_fail = false;
  EXPECT_TRUE(Find().manifest);
  EXPECT_EQ(store_->GetStats()->quarantined_parts, 0u);
}

TEST_F(EngineStoreTest, RefusesANewerFormat) {
  store_.reset();
  WriteSet writes;
  writes.PutOwned(Family::kMeta, std::string(kFormatKey), EncodeScalar(kStoreFormatVersion + 1));
  ASSERT_TRUE(engine_->Write(writes, Durability::kSynced).ok());
  const auto opened = EngineStore::Open(std::make_unique<FaultyEngine>(engine_), {});
  EXPECT_TRUE(absl::IsFailedPrecondition(opened.status())) << opened.status();
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("2"));
}

}  // namespace
}  // namespace deltafill
