// The RocksDB engine on a disk that loses what was not synced, that is full, or that flips bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "statestore/rocks_engine.h"
#include "tests/statestore/lossy_file_system.h"
#include "tests/statestore/store_fixture.h"

namespace deltafill {
namespace {

using ::testing::HasSubstr;
using testing::LossyFileSystem;
using testing::SampleChain;
using testing::SamplePart;
using testing::StoreState;

class DiskFaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "disk_fault_" + std::to_string(::getpid());
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(directory_);
  }

  absl::Status Open(rocksdb::Env* env = nullptr) {
    store_.reset();
    auto engine = OpenRocksEngine(
        {.directory = directory_, .env = env, .log = [this](const std::string& line) {
           lines_.push_back(line);
         }});
    if (!engine.ok()) return engine.status();
    EngineStoreOptions options;
    options.log = [](const std::string&) {};
    auto opened = EngineStore::Open(*std::move(engine), options);
    if (!opened.ok()) return opened.status();
    store_ = *std::move(opened);
    chain_ = SampleChain(*store_->GetTenantSalt("acme"), 1, 64);
    return absl::OkStatus();
  }

  // State i has two parts: its own, and one that it shares with its odd or even neighbour.
  std::vector<uint32_t> SeedsOf(size_t i) const {
    return {static_cast<uint32_t>(1000 + i), static_cast<uint32_t>(2000 + i / 2)};
  }
  absl::StatusOr<PutManifestOutcome> Store(size_t i, uint32_t floats_per_layer) {
    return StoreState(store_.get(), "acme", chain_[i], 64 * (i + 1), SeedsOf(i), floats_per_layer);
  }
  // True if the state is found; then its bytes must be right.
  bool FindAndCompare(size_t i, uint32_t floats_per_layer) {
    const auto found =
        store_->FindDeepest("acme", std::span(chain_).subspan(i, 1), 64 * (i + 1), true);
    EXPECT_TRUE(found.ok()) << found.status();
    last_reason_ = found.ok() ? found->miss_reason : "";
    if (!found.ok() || !found->manifest) return false;
    for (size_t part = 0; part < 2; ++part) {
      const SamplePart expected(SeedsOf(i)[part], {0, 1, 2, 5}, floats_per_layer);
      const auto read = store_->GetPart(found->manifest->parts[part].id, {});
      EXPECT_TRUE(read.ok()) << read.status();
      EXPECT_TRUE(read.ok() && read->payload == expected.payload) << "a wrong state";
    }
    return true;
  }
  std::vector<std::string> FilesEndingWith(const std::string& suffix) const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      if (entry.path().string().ends_with(suffix)) files.push_back(entry.path());
    }
    return files;
  }

  std::string directory_;
  std::unique_ptr<EngineStore> store_;
  std::vector<StateId> chain_;
  std::string last_reason_;
  std::vector<std::string> lines_;  // the engine's, from calls of the test's thread
};

void FlipByte(const std::string& path, uint64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(file.get() ^ 0x20);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(byte);
}

TEST_F(DiskFaultTest, AcknowledgedStatesSurviveAPowerFailure) {
  constexpr uint32_t kFloats = 512 * 1024;  // 8 MiB a part: memtables and logs are switched often
  for (uint32_t round = 0; round < 2; ++round) {
    std::filesystem::remove_all(directory_);
    const auto file_system = std::make_shared<LossyFileSystem>();
    const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(file_system);
    ASSERT_TRUE(Open(env.get()).ok());
    const size_t state_count = 7 + 2 * round;
    for (size_t i = 0; i < state_count; ++i) ASSERT_TRUE(Store(i, kFloats).ok());
    const SamplePart unpublished(7, {0}, kFloats);
    ASSERT_TRUE(store_->PutPart("acme", unpublished.header, unpublished.Payloads()).ok());
    file_system->CutPower();
    store_.reset();
    EXPECT_GT(file_system->LoseUnsynced(), kFloats) << "the test must lose something";
    ASSERT_TRUE(Open().ok());
    for (size_t i = 0; i < state_count; ++i) EXPECT_TRUE(FindAndCompare(i, kFloats)) << i;
    EXPECT_EQ(store_->GetStats()->quarantined_parts, 0u);
  }
}

TEST_F(DiskFaultTest, AFullDiskRefusesWritesAndRecovers) {
  constexpr uint32_t kFloats = 64 * 1024;  // 1 MiB a part
  const auto file_system = std::make_shared<LossyFileSystem>();
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(file_system);
  ASSERT_TRUE(Open(env.get()).ok());
  for (size_t i = 0; i < 4; ++i) ASSERT_TRUE(Store(i, kFloats).ok());
  file_system->SetFreeBytes(5 << 20);
  size_t stored = 4;
  absl::Status status;
  while (stored < 20 && status.ok()) {
    status = Store(stored, kFloats).status();
    if (status.ok()) ++stored;
  }
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_LT(stored, 10u);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("takes no writes"), std::string::npos) << lines_[0];
  EXPECT_TRUE(absl::IsUnavailable(Store(stored, kFloats).status()));
  for (size_t i = 0; i < stored; ++i) EXPECT_TRUE(FindAndCompare(i, kFloats)) << i;

  file_system->SetFreeBytes(int64_t{1} << 60);
  for (int tries = 0; tries < 100; ++tries) {
    status = Store(stored, kFloats).status();
    if (status.ok()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_NE(lines_.back().find("and takes writes"), std::string::npos) << lines_.back();
  for (size_t i = 0; i <= stored; ++i) EXPECT_TRUE(FindAndCompare(i, kFloats)) << i;
  ASSERT_TRUE(Open().ok());
  for (size_t i = 0; i <= stored; ++i) EXPECT_TRUE(FindAndCompare(i, kFloats)) << i;
}

TEST_F(DiskFaultTest, AFlippedByteIsAMissThatHeals) {
  constexpr uint32_t kFloats = 4096;
  constexpr size_t kStates = 16;
  ASSERT_TRUE(Open().ok());
  for (size_t i = 0; i < kStates; ++i) ASSERT_TRUE(Store(i, kFloats).ok());
  ASSERT_TRUE(Open().ok());  // moves the parts from the log into blob files
  store_.reset();
  std::mt19937 random(7);
  for (int round = 0; round < 8; ++round) {
    const std::vector<std::string> files = FilesEndingWith(".blob");
    ASSERT_FALSE(files.empty());
    for (const std::string& file : files) {
      FlipByte(file, 4096 + random() % (std::filesystem::file_size(file) - 8192));
    }
    ASSERT_TRUE(Open().ok());
    size_t misses = 0;
    for (size_t i = 0; i < kStates; ++i) {
      if (FindAndCompare(i, kFloats)) continue;
      ++misses;
      EXPECT_THAT(last_reason_, HasSubstr("boundary " + std::to_string(64 * (i + 1))));
    }
    EXPECT_GT(misses, 0u);
    EXPECT_GT(store_->GetStats()->quarantined_parts, 0u);
    for (size_t i = 0; i < kStates; ++i) {
      const absl::Status stored = Store(i, kFloats).status();
      EXPECT_TRUE(stored.ok()) << stored;
    }
    for (size_t i = 0; i < kStates; ++i) EXPECT_TRUE(FindAndCompare(i, kFloats)) << last_reason_;
    ASSERT_TRUE(Open().ok());
    store_.reset();
  }
}

// Anywhere in the log or in a table: what is found is right, what is not can be stored again.
TEST_F(DiskFaultTest, DamageInAnyFileIsNeverAWrongState) {
  constexpr uint32_t kFloats = 512;
  constexpr size_t kStates = 24;
  std::mt19937 random(11);
  size_t misses = 0;
  for (int round = 0; round < 20; ++round) {
    std::filesystem::remove_all(directory_);
    ASSERT_TRUE(Open().ok());
    for (size_t i = 0; i < kStates; ++i) ASSERT_TRUE(Store(i, kFloats).ok());
    const bool in_tables = round % 2 == 1;
    if (in_tables) {
      ASSERT_TRUE(Open().ok());
    }
    store_.reset();
    for (const std::string& file : FilesEndingWith(in_tables ? ".sst" : ".log")) {
      const uint64_t bytes = std::filesystem::file_size(file);
      if (bytes > 0) FlipByte(file, random() % bytes);
    }
    const absl::Status opened = Open();
    if (!opened.ok()) {  // RocksDB's own index of a table
      EXPECT_TRUE(absl::IsDataLoss(opened)) << opened;
      EXPECT_THAT(std::string(opened.message()), HasSubstr(directory_));
      continue;
    }
    for (size_t i = 0; i < kStates; ++i) misses += FindAndCompare(i, kFloats) ? 0 : 1;
    for (size_t i = 0; i < kStates; ++i) {
      const absl::Status stored = Store(i, kFloats).status();
      EXPECT_TRUE(stored.ok()) << stored;
      EXPECT_TRUE(FindAndCompare(i, kFloats)) << last_reason_;
    }
  }
  EXPECT_GT(misses, 0u) << "the test must damage something";
}

TEST_F(DiskFaultTest, ADirectoryIsOpenedOnce) {
  ASSERT_TRUE(Open().ok());
  const absl::Status status = OpenRocksStore({.directory = directory_}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_));
  EXPECT_TRUE(absl::IsInvalidArgument(OpenRocksStore({}).status()));
  EXPECT_TRUE(absl::IsUnavailable(OpenRocksStore({.directory = "/proc/none"}).status()));
}

TEST_F(DiskFaultTest, ALockThatCannotBeMadeIsNoSecondProcess) {
  std::filesystem::create_directories(directory_ + "/LOCK");
  const absl::Status status = OpenRocksStore({.directory = directory_}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not open"));
}

}  // namespace
}  // namespace deltafill
