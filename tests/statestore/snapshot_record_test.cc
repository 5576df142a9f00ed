// Snapshot records: what every store must do with them, and what they hold.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>
#include <gtest/gtest.h>

#include <thread>

#include "statestore/records.h"
#include "statestore/service.h"
#include "statestore/snapshot_record_message.h"
#include "tests/statestore/store_fixture.h"

namespace deltafill {
namespace {

using testing::FaultyEngine;
using ::testing::HasSubstr;
using testing::SampleChain;
using testing::StoreState;

// A store in memory over bytes that outlive it, asked directly or through its service.
class SnapshotRecordTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    Open();
    salt_ = *store_->GetTenantSalt("acme");
    chain_ = SampleChain(salt_, 1, 6);
  }
  void TearDown() override { Close(); }

  void Open(uint64_t budget_bytes = 0) {
    Close();
    EngineStoreOptions options;
    options.budget_bytes = budget_bytes;
    options.sweep_interval = std::chrono::milliseconds(0);
    options.log = [](const std::string&) {};
    options.clock = clock_;
    backing_ = *EngineStore::Open(std::make_unique<FaultyEngine>(bytes_), options);
    store_ = backing_.get();
    if (GetParam() != "remote") return;
    service_ = NewStateStoreService(backing_.get());
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    remote_ = *ConnectStore("127.0.0.1:" + std::to_string(port));
    store_ = remote_.get();
  }
  void Close() {
    remote_.reset();
    if (server_) server_->Shutdown();
    server_.reset();
    service_.reset();
    backing_.reset();
  }

  void Store(size_t index, uint32_t floats_per_layer = 64) {
    const auto stored = StoreState(store_, "acme", chain_[index], 64 * (index + 1),
                                   {static_cast<uint32_t>(index + 1)}, floats_per_layer);
    ASSERT_TRUE(stored.ok()) << stored.status();
  }
  bool IsThere(size_t index) { return store_->GetManifest("acme", chain_[index]).ok(); }

  SnapshotRecord Record(const std::string& name, std::vector<size_t> holds,
                        uint64_t revision = 0) const {
    SnapshotRecord record;
    record.tenant = "acme";
    record.name = name;
    record.revision = revision;
    record.summary = "summary of " + name;
    record.contents = std::string("contents\0of ", 12) + name;
    for (size_t index : holds) record.holds.push_back(chain_[index]);
    return record;
  }
  uint64_t Put(const SnapshotRecord& record) {
    const auto revision = store_->PutSnapshotRecord(record);
    EXPECT_TRUE(revision.ok()) << revision.status();
    return revision.value_or(0);
  }

  std::shared_ptr<testing::FakeClock> clock_ = std::make_shared<testing::FakeClock>();
  std::shared_ptr<KeyValueEngine> bytes_ = NewMemoryEngine();
  std::unique_ptr<EngineStore> backing_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<StateStore> remote_;
  StateStore* store_ = nullptr;
  TenantSalt salt_;
  std::vector<StateId> chain_;
};

INSTANTIATE_TEST_SUITE_P(Stores, SnapshotRecordTest, ::testing::Values("direct", "remote"),
                         [](const auto& parameter) { return parameter.param; });

TEST_P(SnapshotRecordTest, WhatIsPutIsThereAlsoAfterARestart) {
  Store(0);
  const SnapshotRecord record = Record("app", {0});
  const uint64_t revision = Put(record);
  for (int round = 0; round < 2; ++round) {
    const auto read = store_->GetSnapshotRecord("acme", "app");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->revision, revision);
    EXPECT_EQ(read->summary, record.summary);
    EXPECT_EQ(read->contents, record.contents);
    EXPECT_EQ(read->holds, record.holds);
    Open();
  }
  EXPECT_TRUE(absl::IsNotFound(store_->GetSnapshotRecord("other", "app").status()));
}

TEST_P(SnapshotRecordTest, ARevisionIsReplacedOnce) {
  const uint64_t first = Put(Record("app", {}));
  EXPECT_TRUE(absl::IsAlreadyExists(store_->PutSnapshotRecord(Record("app", {})).status()));
  const uint64_t second = Put(Record("app", {}, first));
  EXPECT_GT(second, first);
  EXPECT_TRUE(absl::IsAborted(store_->PutSnapshotRecord(Record("app", {}, first)).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->PutSnapshotRecord(Record("new", {}, first)).status()));
  ASSERT_TRUE(store_->DeleteSnapshotRecord("acme", "app").ok());
  EXPECT_TRUE(absl::IsNotFound(store_->DeleteSnapshotRecord("acme", "app").status()));
  EXPECT_GT(Put(Record("app", {})), 0u);
}

TEST_P(SnapshotRecordTest, HeldStatesStayUntilNothingHoldsThem) {
  for (size_t i = 0; i < 4; ++i) Store(i);
  const uint64_t first = Put(Record("app", {0, 1, 2, 2}));
  Put(Record("app@1", {0, 1}));
  ASSERT_TRUE(store_->SetPinned("acme", chain_[3], true).ok());
  const absl::Status refused = store_->Delete("acme", chain_[0]);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("held by a snapshot"));

  Put(Record("app", {0, 3}, first));
  EXPECT_FALSE(IsThere(2)) << "only the replaced record held it";
  EXPECT_TRUE(IsThere(1)) << "the other record holds it";
  EXPECT_EQ(*store_->DeleteSnapshotRecord("acme", "app@1"), 1u);
  EXPECT_FALSE(IsThere(1));
  EXPECT_EQ(*store_->DeleteSnapshotRecord("acme", "app"), 1u);
  EXPECT_FALSE(IsThere(0));
  EXPECT_TRUE(IsThere(3)) << "it is pinned";
  EXPECT_TRUE(store_->Delete("acme", chain_[3]).ok());
  EXPECT_EQ(store_->GetStats()->bytes, 0u);
}

TEST_P(SnapshotRecordTest, AStateThatIsNotThereCannotBeHeld) {
  Store(0);
  const absl::Status refused = store_->PutSnapshotRecord(Record("app", {0, 1})).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_TRUE(absl::IsNotFound(store_->GetSnapshotRecord("acme", "app").status()));
  EXPECT_TRUE(store_->Delete("acme", chain_[0]).ok()) << "the hold was taken back";
  Store(0);
  SnapshotRecord other = Record("theirs", {0});
  other.tenant = "other";
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->PutSnapshotRecord(other).status()));
}

TEST_P(SnapshotRecordTest, HeldStatesAreNotEvictedAlsoAfterARestart) {
  Store(0, 256);
  Store(1, 256);
  const uint64_t one = store_->GetStats()->bytes / 2;
  Put(Record("app", {0}));
  Open(2 * one + one / 2);
  clock_->Advance(std::chrono::seconds(1));
  for (size_t i = 2; i < 6; ++i) Store(i, 256);
  EXPECT_TRUE(IsThere(0));
  EXPECT_FALSE(IsThere(1));
  const uint64_t revision = store_->GetSnapshotRecord("acme", "app")->revision;
  Put(Record("app", {0, 5}, revision));
  const auto full = StoreState(store_, "acme", SampleChain(salt_, 9, 1)[0], 64, {77}, 256);
  EXPECT_TRUE(absl::IsResourceExhausted(full.status())) << full.status();
}

TEST_P(SnapshotRecordTest, ListsByPrefixInPages) {
  Put(Record("b@2", {}));
  Put(Record("b@1", {}));
  Put(Record("a", {}));
  Put(Record("b", {}));
  Put(Record("c", {}));
  std::vector<std::string> names;
  std::string page;
  do {
    const auto listed = store_->ListSnapshotRecords("acme", "b", page, 1);
    ASSERT_TRUE(listed.ok()) << listed.status();
    for (const SnapshotRecord& record : listed->records) {
      names.push_back(record.name);
      EXPECT_EQ(record.summary, "summary of " + record.name);
      EXPECT_EQ(record.contents, "");
    }
    page = listed->next_page;
  } while (!page.empty());
  EXPECT_THAT(names, ::testing::ElementsAre("b", "b@1", "b@2"));
  EXPECT_THAT(store_->ListSnapshotRecords("other", "", "", 10)->records, ::testing::IsEmpty());
}

TEST_P(SnapshotRecordTest, LimitsAreNamed) {
  SnapshotRecord record = Record("", {});
  EXPECT_THAT(std::string(store_->PutSnapshotRecord(record).status().message()),
              HasSubstr("snapshot name: 0 bytes"));
  record.name = "app";
  record.contents.resize(kSnapshotContentsBytesMax + 1);
  EXPECT_THAT(std::string(store_->PutSnapshotRecord(record).status().message()),
              HasSubstr("contents has 3145729 bytes, limit 3145728"));
  record.contents.resize(kSnapshotContentsBytesMax);
  EXPECT_TRUE(store_->PutSnapshotRecord(record).ok());
  EXPECT_EQ(store_->GetSnapshotRecord("acme", "app")->contents.size(), kSnapshotContentsBytesMax);
}

TEST_P(SnapshotRecordTest, AFailedWriteChangesNothing) {
  Store(0);
  FaultyEngine::writes_fail = true;
  const absl::Status failed = backing_->PutSnapshotRecord(Record("app", {0})).status();
  FaultyEngine::writes_fail = false;
  EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
  EXPECT_TRUE(store_->Delete("acme", chain_[0]).ok());
}

TEST_P(SnapshotRecordTest, ADamagedRecordIsAnErrorAndCanBeReplaced) {
  Store(0);
  Put(Record("app", {0}));
  const std::string key = SnapshotKey("acme", "app");
  std::string value;
  ASSERT_TRUE(bytes_->Get(Family::kMeta, key, [&](std::string_view raw) { value = raw; }).ok());
  value[value.size() / 2] ^= 1;
  WriteSet writes;
  writes.Put(Family::kMeta, key, value);
  ASSERT_TRUE(bytes_->Write(writes, Durability::kSynced).ok());
  EXPECT_TRUE(absl::IsDataLoss(store_->GetSnapshotRecord("acme", "app").status()));
  EXPECT_THAT(store_->ListSnapshotRecords("acme", "", "", 10)->records, ::testing::IsEmpty());
  Open();
  EXPECT_TRUE(IsThere(0)) << "not held any more, but nobody evicted it";
  Put(Record("app", {0}));
  EXPECT_TRUE(store_->GetSnapshotRecord("acme", "app").ok());
}

// The manifest of a held state is damaged: the state is lost. Published again, it is held again.
TEST_P(SnapshotRecordTest, AStateThatIsPublishedAgainIsHeldAgain) {
  Store(0);
  Put(Record("app", {0}));
  WriteSet writes;
  writes.PutOwned(Family::kMeta, ManifestKey("acme", chain_[0]), "nonsense");
  ASSERT_TRUE(bytes_->Write(writes, Durability::kSynced).ok());
  Open();
  EXPECT_FALSE(IsThere(0));
  Store(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->Delete("acme", chain_[0])));
  EXPECT_EQ(*store_->DeleteSnapshotRecord("acme", "app"), 1u);
  EXPECT_FALSE(IsThere(0));
}

TEST_P(SnapshotRecordTest, WritersAtOnceLeaveNothingHeld) {
  for (size_t i = 0; i < 6; ++i) Store(i);
  Put(Record("keeps", {0, 1, 2, 3, 4, 5}));
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([this, number] {
      const std::string name = "app-" + std::to_string(number);
      uint64_t revision = 0;
      for (size_t round = 0; round < 20; ++round) {
        revision = Put(Record(name, {round % 6, (round + 1) % 6}, revision));
      }
      EXPECT_TRUE(store_->DeleteSnapshotRecord("acme", name).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(IsThere(i));
  EXPECT_EQ(*store_->DeleteSnapshotRecord("acme", "keeps"), 6u);
  EXPECT_EQ(store_->GetStats()->states, 0u);
  EXPECT_EQ(store_->GetStats()->bytes, 0u);
}

TEST(SnapshotRecordFormat, EveryDamagedByteIsNoticed) {
  SnapshotRecord record;
  record.tenant = "acme";
  record.name = "app";
  record.contents = "contents";
  const std::string encoded = EncodeSnapshotRecord(record);
  ASSERT_TRUE(DecodeSnapshotRecord(encoded).ok());
  for (size_t i = 0; i < encoded.size(); ++i) {
    std::string damaged = encoded;
    damaged[i] ^= 0x10;
    EXPECT_TRUE(absl::IsDataLoss(DecodeSnapshotRecord(damaged).status())) << i;
    EXPECT_TRUE(absl::IsDataLoss(DecodeSnapshotRecord(encoded.substr(0, i)).status())) << i;
  }
}

}  // namespace
}  // namespace deltafill
