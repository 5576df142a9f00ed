#include "statestore/rocks_engine.h"

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <shared_mutex>

#include "absl/strings/str_cat.h"
#include "statestore/rocks_options.h"

namespace deltafill {
namespace {

// RocksDB needs room to flush what its log holds when it is opened.
constexpr uint64_t kReopenFreeBytesMin = uint64_t{512} << 20;
constexpr std::chrono::seconds kRecoveryInterval{1};

rocksdb::Slice ToSlice(std::string_view text) { return {text.data(), text.size()}; }
std::string_view ToView(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

class RocksEngine final : public KeyValueEngine {
 public:
  explicit RocksEngine(const RocksEngineOptions& options)
      : options_(options), block_cache_(NewBlockCache()) {}

  ~RocksEngine() override {
    std::unique_lock lock(mutex_);
    if (database_ != nullptr) (void)database_->SyncWAL();
    Close();
  }

  absl::Status Open() {
    std::unique_lock lock(mutex_);
    return OpenLocked();
  }

  absl::Status Get(Family family, std::string_view key,
                   absl::FunctionRef<void(std::string_view)> use) override {
    std::shared_lock lock(mutex_);
    if (database_ == nullptr) return absl::UnavailableError("the store's database is closed");
    rocksdb::PinnableSlice value;
    const rocksdb::Status status =
        database_->Get(ReadOptionsOf(family), Handle(family), ToSlice(key), &value);
    if (!status.ok()) return FromRocksStatus(status);
    use(ToView(value));
    return absl::OkStatus();
  }

  absl::Status Write(const WriteSet& writes, Durability durability) override {
    if (write_failed_.load()) {
      if (absl::Status status = Recover(); !status.ok()) return status;
    }
    std::shared_lock lock(mutex_);
    if (database_ == nullptr) return absl::UnavailableError("the store's database is closed");
    rocksdb::WriteBatch batch;
    for (const WriteSet::Step& step : writes.steps()) {
      const rocksdb::Status status =
          step.removes ? batch.Delete(Handle(step.family), ToSlice(step.key))
                       : batch.Put(Handle(step.family), ToSlice(step.key), ToSlice(step.value));
      if (!status.ok()) return absl::InternalError(status.ToString());
    }
    rocksdb::WriteOptions write_options;
    write_options.sync = durability == Durability::kSynced && options_.sync_writes;
    const rocksdb::Status status = database_->Write(write_options, &batch);
    if (status.ok()) return absl::OkStatus();
    write_failed_.store(true);
    return absl::UnavailableError(absl::StrCat("RocksDB: ", status.ToString()));
  }

  absl::Status Scan(Family family, std::string_view prefix, std::string_view from,
                    absl::FunctionRef<bool(std::string_view, std::string_view)> visit) override {
    std::shared_lock lock(mutex_);
    if (database_ == nullptr) return absl::UnavailableError("the store's database is closed");
    std::unique_ptr<rocksdb::Iterator> it(
        database_->NewIterator(ReadOptionsOf(family), Handle(family)));
    for (it->Seek(ToSlice(std::max(prefix, from))); it->Valid(); it->Next()) {
      if (!ToView(it->key()).starts_with(prefix)) break;
      if (!visit(ToView(it->key()), ToView(it->value()))) break;
    }
    return FromRocksStatus(it->status());
  }

 private:
  static rocksdb::ReadOptions ReadOptionsOf(Family family) {
    rocksdb::ReadOptions options;
    options.verify_checksums = family == Family::kMeta;
    return options;
  }

  rocksdb::ColumnFamilyHandle* Handle(Family family) const {
    return family == Family::kMeta ? handles_[1] : handles_[2];
  }

  absl::Status OpenLocked() {
    const std::vector<rocksdb::ColumnFamilyDescriptor> families = {
        {rocksdb::kDefaultColumnFamilyName, MetaFamilyOptions(block_cache_)},
        {"meta", MetaFamilyOptions(block_cache_)},
        {"parts", PartsFamilyOptions(block_cache_)}};
    rocksdb::DB* database = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(
        StoreDatabaseOptions(options_.env), options_.directory, families, &handles_, &database);
    if (status.ok()) {
      database_.reset(database);
      return absl::OkStatus();
    }
    handles_.clear();
    const std::string text = status.ToString();
    if (status.IsIOError() && text.find("/LOCK") != std::string::npos) {
      return absl::FailedPreconditionError(
          absl::StrCat("store directory ", options_.directory, " is open already: ", text));
    }
    const absl::Status converted = FromRocksStatus(status);
    return absl::Status(converted.code(), absl::StrCat("store directory ", options_.directory,
                                                       " does not open: ", text));
  }

  void Close() {
    if (database_ == nullptr) return;
    for (rocksdb::ColumnFamilyHandle* handle : handles_) {
      (void)database_->DestroyColumnFamilyHandle(handle);
    }
    handles_.clear();
    (void)database_->Close();
    database_.reset();
  }

  // Tried at most once a second, by whichever write comes.
  absl::Status Recover() {
    std::lock_guard recovery_lock(recovery_mutex_);
    if (!write_failed_.load()) return absl::OkStatus();
    const auto now = std::chrono::steady_clock::now();
    if (now < next_recovery_) {
      return absl::UnavailableError("an earlier write failed; the store recovers within seconds");
    }
    next_recovery_ = now + kRecoveryInterval;
    {
      std::shared_lock lock(mutex_);
      if (database_ != nullptr && database_->Resume().ok()) {
        write_failed_.store(false);
        return absl::OkStatus();
      }
    }
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(options_.directory, error);
    if (error || space.available < kReopenFreeBytesMin) {
      return absl::UnavailableError(absl::StrCat("an earlier write failed, and the disk has under ",
                                                 kReopenFreeBytesMin, " bytes free"));
    }
    std::unique_lock lock(mutex_);
    Close();
    if (absl::Status status = OpenLocked(); !status.ok()) {
      return absl::UnavailableError(std::string(status.message()));
    }
    write_failed_.store(false);
    return absl::OkStatus();
  }

  const RocksEngineOptions options_;
  const std::shared_ptr<rocksdb::Cache> block_cache_;

  std::atomic<bool> write_failed_{false};
  std::mutex recovery_mutex_;                              // taken before mutex_
  std::chrono::steady_clock::time_point next_recovery_{};  // guarded by recovery_mutex_

  std::shared_mutex mutex_;                // shared: use the database; exclusive: open or close it
  std::unique_ptr<rocksdb::DB> database_;  // null while closed
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KeyValueEngine>> OpenRocksEngine(const RocksEngineOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("store directory ", options.directory, " cannot be made: ", error.message()));
  }
  auto engine = std::make_unique<RocksEngine>(options);
  if (absl::Status status = engine->Open(); !status.ok()) return status;
  return engine;
}

}  // namespace deltafill
