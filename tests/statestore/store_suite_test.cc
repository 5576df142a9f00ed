// What every store must do, whatever keeps its bytes: RocksDB, memory, or a service far away.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "statestore/service.h"
#include "tests/statestore/store_fixture.h"

namespace deltafill {
namespace {

using ::testing::HasSubstr;
using testing::SampleChain;
using testing::SampleManifest;
using testing::SamplePart;
using testing::StoreState;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Owns what a store stands on.
struct StoreUnderTest {
  ~StoreUnderTest() {
    store.reset();
    if (server) server->Shutdown();
    server.reset();
    backing.reset();
    if (!directory.empty()) std::filesystem::remove_all(directory);
  }

  void OpenRocks() {
    directory = ::testing::TempDir() + "store_suite_" + std::to_string(::getpid());
    std::filesystem::remove_all(directory);
    auto opened = OpenRocksStore({.directory = directory});
    ASSERT_TRUE(opened.ok()) << opened.status();
    store = *std::move(opened);
  }

  void OpenRemote() {
    backing = NewMemoryStore({});
    service = NewStateStoreService(backing.get());
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service.get());
    server = builder.BuildAndStart();
    store = *ConnectStore("127.0.0.1:" + std::to_string(port));
  }

  std::string directory;
  std::unique_ptr<StateStore> backing;
  std::unique_ptr<grpc::Service> service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<StateStore> store;
};

class StoreSuite : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "memory") under_test_.store = NewMemoryStore({});
    if (GetParam() == "rocks") under_test_.OpenRocks();
    if (GetParam() == "remote") under_test_.OpenRemote();
    store_ = under_test_.store.get();
    salt_ = *store_->GetTenantSalt("acme");
    chain_ = SampleChain(salt_, 1, 10);
  }

  StoreUnderTest under_test_;
  StateStore* store_ = nullptr;
  TenantSalt salt_;
  std::vector<StateId> chain_;  // boundaries 64, 128, ..., 640
};

INSTANTIATE_TEST_SUITE_P(Engines, StoreSuite, ::testing::Values("memory", "rocks", "remote"),
                         [](const auto& parameter) { return parameter.param; });

TEST_P(StoreSuite, SaltsAreStableSecretsOfATenant) {
  EXPECT_EQ(*store_->GetTenantSalt("acme"), salt_);
  EXPECT_NE(*store_->GetTenantSalt("other"), salt_);
  EXPECT_NE(salt_, TenantSalt{});
  EXPECT_TRUE(absl::IsInvalidArgument(store_->GetTenantSalt("").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->GetTenantSalt(std::string(129, 'x')).status()));
}

TEST_P(StoreSuite, PartsComeBackWholeAndByLayer) {
  const SamplePart part(2, {1, 4, 9}, 100'000);  // 1.2 MB: several chunks
  const auto receipt = store_->PutPart("acme", part.header, part.Payloads());
  ASSERT_TRUE(receipt.ok()) << receipt.status();
  EXPECT_NE(receipt->lease_id, 0u);
  EXPECT_EQ(receipt->kind, part.header.kind);
  EXPECT_EQ(receipt->bytes, part.header.HeaderBytes() + part.payload.size());
  const std::string encoded = *EncodePartHeader(part.header, part.Payloads());
  EXPECT_EQ(receipt->id, ComputePartId(salt_, encoded, part.Payloads()));

  const auto whole = store_->GetPart(receipt->id, {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->header, part.header);
  EXPECT_EQ(whole->payload, part.payload);

  const std::vector<uint32_t> layers = {1, 9};
  const auto some = store_->GetPart(receipt->id, layers);
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->header.layers, layers);
  std::vector<std::byte> expected(part.Payloads()[0].begin(), part.Payloads()[0].end());
  expected.insert(expected.end(), part.Payloads()[2].begin(), part.Payloads()[2].end());
  EXPECT_EQ(some->payload, expected);

  EXPECT_TRUE(absl::IsNotFound(store_->GetPart(receipt->id, std::vector<uint32_t>{2}).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(store_->GetPart(receipt->id, std::vector<uint32_t>{4, 1}).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->GetPart(PartId{}, {}).status()));
}

TEST_P(StoreSuite, PuttingAPartAgainGivesAnotherLease) {
  const SamplePart part(2, {0}, 10);
  const auto first = store_->PutPart("acme", part.header, part.Payloads());
  const auto second = store_->PutPart("acme", part.header, part.Payloads());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->id, second->id);
  EXPECT_NE(first->lease_id, second->lease_id);
  EXPECT_EQ(store_->GetStats()->parts, 1u);
  EXPECT_TRUE(store_->RenewLeases(std::vector<uint64_t>{first->lease_id, second->lease_id}).ok());
  EXPECT_TRUE(store_->ReleaseLeases(std::vector<uint64_t>{first->lease_id}).ok());
  EXPECT_TRUE(store_->GetPart(first->id, {}).ok());
  EXPECT_TRUE(absl::IsNotFound(
      store_->RenewLeases(std::vector<uint64_t>{first->lease_id, second->lease_id})));
  EXPECT_TRUE(store_->ReleaseLeases(std::vector<uint64_t>{second->lease_id, 12345}).ok());
  EXPECT_TRUE(absl::IsNotFound(store_->GetPart(first->id, {}).status()));
}

TEST_P(StoreSuite, LeasingPartsAgainIsAllOrNothing) {
  const SamplePart first(1, {0}, 10), second(2, {0}, 10);
  const PartReceipt one = *store_->PutPart("acme", first.header, first.Payloads());
  const PartReceipt two = *store_->PutPart("acme", second.header, second.Payloads());
  const auto leased = store_->LeaseParts(std::vector<PartId>{two.id, one.id, two.id});
  ASSERT_TRUE(leased.ok()) << leased.status();
  ASSERT_EQ(leased->size(), 3u);
  EXPECT_EQ((*leased)[0].id, two.id);
  EXPECT_EQ((*leased)[1].bytes, one.bytes);
  EXPECT_EQ((*leased)[1].kind, one.kind);
  EXPECT_NE((*leased)[0].lease_id, (*leased)[2].lease_id);
  EXPECT_TRUE(store_->ReleaseLeases(std::vector<uint64_t>{one.lease_id, two.lease_id}).ok());
  EXPECT_TRUE(store_->GetPart(one.id, {}).ok());
  EXPECT_TRUE(store_->ReleaseLeases(std::vector<uint64_t>{(*leased)[1].lease_id}).ok());
  EXPECT_EQ(store_->GetStats()->parts, 1u);
  // `two` is not leased by the call that fails.
  const auto refused = store_->LeaseParts(std::vector<PartId>{two.id, one.id});
  EXPECT_TRUE(absl::IsNotFound(refused.status())) << refused.status();
  EXPECT_THAT(Message(refused.status()), HasSubstr(one.id.ToHex()));
  EXPECT_TRUE(
      store_->ReleaseLeases(std::vector<uint64_t>{(*leased)[0].lease_id, (*leased)[2].lease_id})
          .ok());
  EXPECT_EQ(store_->GetStats()->parts, 0u);
  EXPECT_TRUE(store_->LeaseParts({})->empty());
}

TEST_P(StoreSuite, BadPartsAreRefused) {
  SamplePart part(2, {0}, 10);
  EXPECT_TRUE(absl::IsInvalidArgument(store_->PutPart("", part.header, part.Payloads()).status()));
  const auto payloads = part.Payloads();
  part.header.shape[2] = 11;
  const absl::Status status = store_->PutPart("acme", part.header, payloads).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("44"));
}

TEST_P(StoreSuite, NothingIsVisibleBeforeItsManifest) {
  const SamplePart part(2, {0}, 10);
  const auto receipt = store_->PutPart("acme", part.header, part.Payloads());
  EXPECT_TRUE(absl::IsNotFound(store_->GetManifest("acme", chain_[0]).status()));
  const auto found = store_->FindDeepest("acme", chain_, 64, true);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->manifest);
  EXPECT_EQ(found->miss_reason, "");

  Manifest manifest = SampleManifest("acme", chain_[0], 64, {*receipt});
  const PartId missing{{1, 2, 3}};
  manifest.parts.push_back({missing, PartKind::kConvTail, 5});
  const absl::Status status = store_->PutManifest(manifest, {}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr(missing.ToHex()));
  EXPECT_TRUE(absl::IsNotFound(store_->GetManifest("acme", chain_[0]).status()));
  EXPECT_EQ(store_->GetStats()->states, 0u);
}

TEST_P(StoreSuite, BadManifestsAreRefused) {
  const SamplePart part(2, {0}, 10);
  const auto receipt = store_->PutPart("acme", part.header, part.Payloads());
  const Manifest good = SampleManifest("acme", chain_[0], 64, {*receipt});
  const auto refused = [&](auto change, const std::string& field) {
    Manifest manifest = good;
    change(manifest);
    const absl::Status status = store_->PutManifest(manifest, {}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Message(status), HasSubstr(field));
  };
  refused([](Manifest& m) { m.tenant = ""; }, "tenant");
  refused([](Manifest& m) { m.boundary = 0; }, "boundary");
  refused([](Manifest& m) { m.boundary = 65; }, "boundary");
  refused([](Manifest& m) { m.numerics = std::string(513, 'n'); }, "numerics");
  refused([](Manifest& m) { m.parts.clear(); }, "parts");
  refused([](Manifest& m) { m.parts.push_back(m.parts[0]); }, "parts");
  refused([](Manifest& m) { m.parts.resize(kManifestPartsMax + 1); }, "parts");
  Manifest wrong_size = good;
  wrong_size.parts[0].bytes += 1;
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->PutManifest(wrong_size, {}).status()));
}

TEST_P(StoreSuite, FindsTheDeepestState) {
  ASSERT_TRUE(StoreState(store_, "acme", chain_[2], 192, {2, 3}).ok());
  ASSERT_TRUE(StoreState(store_, "acme", chain_[6], 448, {4, 5}).ok());
  for (bool verify : {false, true}) {
    auto found = store_->FindDeepest("acme", chain_, 64, verify);
    ASSERT_TRUE(found.ok() && found->manifest) << found.status();
    EXPECT_EQ(found->chain_index, 6u);
    EXPECT_EQ(found->manifest->boundary, 448u);
    EXPECT_EQ(found->manifest->parts.size(), 2u);
    EXPECT_EQ(found->miss_reason, "");
    found = store_->FindDeepest("acme", std::span(chain_).first(6), 64, verify);
    ASSERT_TRUE(found.ok() && found->manifest);
    EXPECT_EQ(found->chain_index, 2u);
    found = store_->FindDeepest("acme", std::span(chain_).subspan(3, 4), 256, verify);
    ASSERT_TRUE(found.ok() && found->manifest);
    EXPECT_EQ(found->chain_index, 3u);
    found = store_->FindDeepest("acme", std::span(chain_).first(2), 64, verify);
    ASSERT_TRUE(found.ok());
    EXPECT_FALSE(found->manifest);
  }
  // A state that claims another boundary than the chain is passed over, with the reason.
  const auto shifted = store_->FindDeepest("acme", std::span(chain_).subspan(6, 1), 64, true);
  ASSERT_TRUE(shifted.ok());
  EXPECT_FALSE(shifted->manifest);
  EXPECT_THAT(shifted->miss_reason, HasSubstr("448"));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->FindDeepest("acme", chain_, 63, true).status()));
  const std::vector<StateId> too_long(kChainLengthMax + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(store_->FindDeepest("acme", too_long, 64, true).status()));
  EXPECT_TRUE(store_->FindDeepest("acme", {}, 64, true).ok());
}

TEST_P(StoreSuite, TenantsSeeOnlyTheirOwn) {
  ASSERT_TRUE(StoreState(store_, "acme", chain_[0], 64, {2}).ok());
  const absl::Status absent = store_->GetManifest("acme", chain_[1]).status();
  const absl::Status foreign = store_->GetManifest("other", chain_[0]).status();
  EXPECT_TRUE(absl::IsNotFound(absent));
  EXPECT_TRUE(absl::IsNotFound(foreign));
  EXPECT_EQ(Message(foreign), "no state " + chain_[0].ToHex());
  EXPECT_EQ(Message(absent), "no state " + chain_[1].ToHex());
  EXPECT_FALSE(store_->FindDeepest("other", chain_, 64, true)->manifest);
  EXPECT_EQ(store_->FindDeepest("other", chain_, 64, true)->miss_reason, "");
  EXPECT_TRUE(absl::IsNotFound(store_->Delete("other", chain_[0])));
  EXPECT_TRUE(absl::IsNotFound(store_->SetPinned("other", chain_[0], true)));
  EXPECT_TRUE(store_->List("other", "", 10)->manifests.empty());
  EXPECT_TRUE(store_->GetManifest("acme", chain_[0]).ok());
  // Equal bytes of two tenants are two parts.
  const SamplePart part(2, {0}, 10);
  EXPECT_NE(store_->PutPart("acme", part.header, part.Payloads())->id,
            store_->PutPart("other", part.header, part.Payloads())->id);
}

TEST_P(StoreSuite, ASecondManifestIsComparedWithTheFirst) {
  EXPECT_EQ(*StoreState(store_, "acme", chain_[0], 64, {2, 3}), PutManifestOutcome::kPublished);
  EXPECT_EQ(*StoreState(store_, "acme", chain_[0], 64, {3, 2}), PutManifestOutcome::kAlreadyThere);
  EXPECT_EQ(*StoreState(store_, "acme", chain_[0], 64, {2, 5}),
            PutManifestOutcome::kDeterminismMismatch);
  EXPECT_EQ(store_->GetStats()->determinism_mismatches, 1u);
  const SamplePart kept(3, {0, 1, 2, 5}, 64);
  const auto manifest = store_->GetManifest("acme", chain_[0]);
  ASSERT_TRUE(manifest.ok());
  EXPECT_EQ(store_->GetPart(manifest->parts[1].id, {})->payload, kept.payload);
  EXPECT_TRUE(absl::IsInvalidArgument(StoreState(store_, "other", chain_[0], 64, {2}).status()));
}

TEST_P(StoreSuite, SharedPartsLiveAsLongAsAnyOfTheirStates) {
  ASSERT_TRUE(StoreState(store_, "acme", chain_[0], 64, {2, 3}).ok());
  ASSERT_TRUE(StoreState(store_, "acme", chain_[1], 128, {3, 4}).ok());
  EXPECT_EQ(store_->GetStats()->parts, 3u);
  const PartId shared = store_->GetManifest("acme", chain_[0])->parts[1].id;
  ASSERT_TRUE(store_->Delete("acme", chain_[0]).ok());
  EXPECT_TRUE(absl::IsNotFound(store_->GetManifest("acme", chain_[0]).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->Delete("acme", chain_[0])));
  EXPECT_TRUE(store_->GetPart(shared, {}).ok());
  EXPECT_EQ(store_->GetStats()->parts, 2u);
  ASSERT_TRUE(store_->Delete("acme", chain_[1]).ok());
  EXPECT_TRUE(absl::IsNotFound(store_->GetPart(shared, {}).status()));
  EXPECT_EQ(store_->GetStats()->parts, 0u);
  EXPECT_EQ(store_->GetStats()->bytes, 0u);
}

TEST_P(StoreSuite, ListsInPages) {
  for (size_t i = 0; i < 7; ++i) {
    ASSERT_TRUE(StoreState(store_, "acme", chain_[i], 64 * (i + 1), {2}).ok());
  }
  std::vector<StateId> seen;
  std::string page;
  int pages = 0;
  do {
    const auto listed = store_->List("acme", page, 3);
    ASSERT_TRUE(listed.ok()) << listed.status();
    for (const Manifest& manifest : listed->manifests) seen.push_back(manifest.state);
    page = listed->next_page;
    ++pages;
  } while (!page.empty());
  std::vector<StateId> expected(chain_.begin(), chain_.begin() + 7);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(pages, 3);
  EXPECT_TRUE(absl::IsInvalidArgument(store_->List("acme", "x", 3).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->List("acme", "", 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->List("acme", "", kListPageMax + 1).status()));
}

TEST_P(StoreSuite, PinsAreKept) {
  ASSERT_TRUE(StoreState(store_, "acme", chain_[0], 64, {2}).ok());
  EXPECT_FALSE(store_->GetManifest("acme", chain_[0])->pinned);
  ASSERT_TRUE(store_->SetPinned("acme", chain_[0], true).ok());
  ASSERT_TRUE(store_->SetPinned("acme", chain_[0], true).ok());
  EXPECT_TRUE(store_->GetManifest("acme", chain_[0])->pinned);
  ASSERT_TRUE(store_->SetPinned("acme", chain_[0], false).ok());
  EXPECT_FALSE(store_->GetManifest("acme", chain_[0])->pinned);
  EXPECT_TRUE(absl::IsNotFound(store_->SetPinned("acme", chain_[1], true)));
}

}  // namespace
}  // namespace deltafill
