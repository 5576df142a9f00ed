#include "statestore/rocks_engine.h"

#include <rocksdb/db.h>
#include <rocksdb/listener.h>
#include <rocksdb/write_batch.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <shared_mutex>

#include "absl/strings/str_cat.h"
#include "statestore/rocks_log.h"
#include "statestore/rocks_options.h"
#include "statestore/unwatched_call.h"

namespace deltafill {
namespace {

// RocksDB needs room to flush what its log holds when it is opened.
constexpr uint64_t kReopenFreeBytesMin = uint64_t{512} << 20;
constexpr std::chrono::seconds kRecoveryInterval{1};

rocksdb::Slice ToSlice(std::string_view text) { return {text.data(), text.size()}; }
std::string_view ToView(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

// The first key that is greater than all that share kept_bytes of *key; false if there is none.
bool ToFirstKeyAfter(size_t kept_bytes, std::string* key) {
  key->resize(kept_bytes, '\0');
  while (!key->empty() && static_cast<uint8_t>(key->back()) == 0xff) key->pop_back();
  if (key->empty()) return false;
  key->back() = static_cast<char>(static_cast<uint8_t>(key->back()) + 1);
  return true;
}

// A compaction that meets a damaged value must not stop all writes. It is tried again later, and
// succeeds once the store has found the damage and removed the value.
class CompactionWatch final : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* error) override {
    if (reason != rocksdb::BackgroundErrorReason::kCompaction || !error->IsCorruption()) return;
    *error = rocksdb::Status::OK();
    saw_damage.store(true);
  }

  std::atomic<bool> saw_damage{false};
};

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
    if (database_ == nullptr || read_only_) {
      return absl::UnavailableError("the store's database is closed for writing");
    }
    rocksdb::WriteBatch batch;
    for (const WriteSet::Step& step : writes.steps()) {
      const rocksdb::Status status =
          step.removes ? batch.Delete(Handle(step.family), ToSlice(step.key))
                       : batch.Put(Handle(step.family), ToSlice(step.key), ToSlice(step.value));
      if (!status.ok()) return absl::InternalError(status.ToString());
    }
    rocksdb::WriteOptions write_options;
    write_options.sync = durability == Durability::kSynced && options_.sync_writes;
    const UnwatchedCall unwatched;
    const rocksdb::Status status = database_->Write(write_options, &batch);
    if (status.ok()) return absl::OkStatus();
    const std::string failure = absl::StrCat("RocksDB: ", status.ToString());
    if (!write_failed_.exchange(true)) {
      Log(absl::StrCat("the store takes no writes until it has recovered: ", failure));
    }
    return absl::UnavailableError(failure);
  }

  bool TakeDamageSuspicion() override { return compaction_watch_->saw_damage.exchange(false); }

  absl::Status Scan(Family family, std::string_view prefix, std::string_view from,
                    absl::FunctionRef<bool(std::string_view, std::string_view)> visit) override {
    std::shared_lock lock(mutex_);
    if (database_ == nullptr) return absl::UnavailableError("the store's database is closed");
    std::string next(std::max(prefix, from));
    absl::Status damage;
    for (size_t kept_bytes = next.size();; --kept_bytes) {
      const std::string start = next;
      std::unique_ptr<rocksdb::Iterator> it(
          database_->NewIterator(ReadOptionsOf(family), Handle(family)));
      for (it->Seek(ToSlice(next)); it->Valid(); it->Next()) {
        if (!ToView(it->key()).starts_with(prefix)) return damage;
        next = it->key().ToString();
        if (!visit(ToView(it->key()), ToView(it->value()))) return damage;
      }
      const absl::Status status = FromRocksStatus(it->status());
      if (!absl::IsDataLoss(status)) return status.ok() ? damage : status;
      // A damaged block. Its end is unknown: seek behind it in steps of growing size.
      damage = status;
      if (next != start) kept_bytes = next.size();
      if (kept_bytes <= prefix.size()) return damage;
      if (!ToFirstKeyAfter(kept_bytes, &next) || !next.starts_with(prefix)) return damage;
    }
  }

 private:
  // Parts have checksums of their own, and RocksDB's, made in software, would halve reading. But
  // its blocks that say where the parts are have only RocksDB's: they are checked when the database
  // is opened, and where one is bad every read checks.
  rocksdb::ReadOptions ReadOptionsOf(Family family) const {
    rocksdb::ReadOptions options;
    options.verify_checksums = family == Family::kMeta || tables_damaged_.load();
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
    rocksdb::DBOptions options = StoreDatabaseOptions(options_.env);
    options.listeners.push_back(compaction_watch_);
    options.info_log = OpenRocksLog(options_.directory);
    rocksdb::DB* database = nullptr;
    const rocksdb::Status status =
        read_only_ ? rocksdb::DB::OpenForReadOnly(options, options_.directory, families, &handles_,
                                                  &database)
                   : rocksdb::DB::Open(options, options_.directory, families, &handles_, &database);
    if (status.ok()) {
      database_.reset(database);
      tables_damaged_.store(!database_->VerifyChecksum(rocksdb::ReadOptions()).ok());
      return absl::OkStatus();
    }
    handles_.clear();
    const std::string text = status.ToString();
    // LOCK was opened, and somebody else holds it.
    if (status.IsIOError() && text.find("/LOCK") != std::string::npos &&
        text.find("open a file for lock") == std::string::npos) {
      return absl::FailedPreconditionError(
          absl::StrCat("store directory ", options_.directory, " is open already: ", text));
    }
    return absl::Status(
        FromRocksStatus(status).code(),
        absl::StrCat("store directory ", options_.directory, " does not open: ", text));
  }

  void Log(const std::string& line) const {
    if (options_.log) options_.log(line);
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
      if (database_ != nullptr && !read_only_ && database_->Resume().ok()) {
        write_failed_.store(false);
        Log("the store has recovered and takes writes");
        return absl::OkStatus();
      }
    }
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(options_.directory, error);
    if (error || space.available < kReopenFreeBytesMin) {
      return absl::UnavailableError(
          absl::StrCat("an earlier write failed; the disk of the store's directory has ",
                       error ? 0 : space.available >> 20, " MiB free, and the store wants ",
                       kReopenFreeBytesMin >> 20, " MiB to recover"));
    }
    return OpenAnew();
  }

  absl::Status OpenAnew() {
    std::unique_lock lock(mutex_);
    Close();
    read_only_ = false;
    absl::Status status = OpenLocked();
    if (status.ok()) {
      write_failed_.store(false);
      Log("the store was opened anew and takes writes");
      return status;
    }
    // Opening writes. Where that fails, reads can still go on.
    read_only_ = true;
    (void)OpenLocked();
    return absl::UnavailableError(std::string(status.message()));
  }

  const RocksEngineOptions options_;
  const std::shared_ptr<rocksdb::Cache> block_cache_;

  const std::shared_ptr<CompactionWatch> compaction_watch_ = std::make_shared<CompactionWatch>();

  std::atomic<bool> write_failed_{false};
  std::atomic<bool> tables_damaged_{false};
  std::mutex recovery_mutex_;                              // taken before mutex_
  std::chrono::steady_clock::time_point next_recovery_{};  // guarded by recovery_mutex_

  std::shared_mutex mutex_;                // shared: use the database; exclusive: open or close it
  std::unique_ptr<rocksdb::DB> database_;  // null while closed
  bool read_only_ = false;
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
