// A file system for RocksDB that knows what was synced, can lose the rest, and can be full.
#ifndef DELTAFILL_TESTS_STATESTORE_LOSSY_FILE_SYSTEM_H_
#define DELTAFILL_TESTS_STATESTORE_LOSSY_FILE_SYSTEM_H_

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace deltafill::testing {

class LossyFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  LossyFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

  const char* Name() const override { return "LossyFileSystem"; }

  // From here on nothing becomes durable and nothing is deleted.
  void CutPower();

  // Once the database is closed: cuts every file back to what was synced before the power was cut.
  // Returns the number of bytes lost.
  uint64_t LoseUnsynced();

  // Appends fail with "no space left" once so many further bytes were appended.
  void SetFreeBytes(int64_t bytes) { free_bytes_ = bytes; }
  bool TakeBytes(size_t bytes) { return free_bytes_.fetch_sub(bytes) >= int64_t(bytes); }

  void NoteSynced(const std::string& path, uint64_t bytes);

  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* result,
                                    rocksdb::IODebugContext* context) override;
  // RocksDB's own logger writes to a file of this system, which can be full, and aborts then: as
  // long as the store has another, nothing comes here.
  rocksdb::IOStatus NewLogger(const std::string& path, const rocksdb::IOOptions& options,
                              std::shared_ptr<rocksdb::Logger>* result,
                              rocksdb::IODebugContext* context) override {
    return FileSystem::NewLogger(path, options, result, context);
  }
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* context) override;

 private:
  struct FileState {
    uint64_t synced_bytes = 0;
    bool after_the_cut = false;
  };

  std::atomic<int64_t> free_bytes_{int64_t{1} << 60};
  std::mutex mutex_;
  bool power_is_cut_ = false;               // guarded by mutex_
  std::map<std::string, FileState> files_;  // guarded by mutex_
};

}  // namespace deltafill::testing

#endif  // DELTAFILL_TESTS_STATESTORE_LOSSY_FILE_SYSTEM_H_
