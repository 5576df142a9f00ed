#include "tests/statestore/lossy_file_system.h"

#include <filesystem>

namespace deltafill::testing {
namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

class LossyFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  LossyFile(std::unique_ptr<rocksdb::FSWritableFile> file, std::string path,
            LossyFileSystem* system)
      : FSWritableFileOwnerWrapper(std::move(file)), path_(std::move(path)), system_(system) {}

  IOStatus Append(const Slice& bytes, const IOOptions& options, IODebugContext* context) override {
    if (!system_->TakeBytes(bytes.size())) return IOStatus::NoSpace("injected");
    bytes_ += bytes.size();
    return FSWritableFileOwnerWrapper::Append(bytes, options, context);
  }
  IOStatus Append(const Slice& bytes, const IOOptions& options,
                  const rocksdb::DataVerificationInfo&, IODebugContext* context) override {
    return Append(bytes, options, context);
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* context) override {
    const uint64_t bytes = bytes_;
    const IOStatus status = FSWritableFileOwnerWrapper::Sync(options, context);
    if (status.ok()) system_->NoteSynced(path_, bytes);
    return status;
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* context) override {
    const uint64_t bytes = bytes_;
    const IOStatus status = FSWritableFileOwnerWrapper::Fsync(options, context);
    if (status.ok()) system_->NoteSynced(path_, bytes);
    return status;
  }

 private:
  const std::string path_;
  LossyFileSystem* const system_;
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace

IOStatus LossyFileSystem::NewWritableFile(const std::string& path,
                                          const rocksdb::FileOptions& options,
                                          std::unique_ptr<rocksdb::FSWritableFile>* result,
                                          IODebugContext* context) {
  std::unique_ptr<rocksdb::FSWritableFile> file;
  const IOStatus status = FileSystemWrapper::NewWritableFile(path, options, &file, context);
  if (!status.ok()) return status;
  std::lock_guard lock(mutex_);
  files_[path] = {0, power_is_cut_};
  *result = std::make_unique<LossyFile>(std::move(file), path, this);
  return status;
}

IOStatus LossyFileSystem::RenameFile(const std::string& from, const std::string& to,
                                     const IOOptions& options, IODebugContext* context) {
  const IOStatus status = FileSystemWrapper::RenameFile(from, to, options, context);
  std::lock_guard lock(mutex_);
  if (status.ok() && files_.count(from) > 0) {
    files_[to] = files_[from];
    files_.erase(from);
  }
  return status;
}

IOStatus LossyFileSystem::DeleteFile(const std::string& path, const IOOptions& options,
                                     IODebugContext* context) {
  std::lock_guard lock(mutex_);
  if (power_is_cut_) return IOStatus::OK();
  files_.erase(path);
  return FileSystemWrapper::DeleteFile(path, options, context);
}

void LossyFileSystem::NoteSynced(const std::string& path, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (!power_is_cut_) files_[path].synced_bytes = bytes;
}

void LossyFileSystem::CutPower() {
  std::lock_guard lock(mutex_);
  power_is_cut_ = true;
}

uint64_t LossyFileSystem::LoseUnsynced() {
  std::lock_guard lock(mutex_);
  uint64_t lost_bytes = 0;
  for (const auto& [path, file] : files_) {
    std::error_code error;
    const uint64_t bytes = std::filesystem::file_size(path, error);
    if (error || path.ends_with("/LOG")) continue;
    if (file.after_the_cut) {
      std::filesystem::remove(path);
    } else if (file.synced_bytes < bytes) {
      lost_bytes += bytes - file.synced_bytes;
      std::filesystem::resize_file(path, file.synced_bytes);
    }
  }
  return lost_bytes;
}

}  // namespace deltafill::testing
