#include "statestore/rocks_options.h"

#include <rocksdb/cache.h>
#include <rocksdb/env.h>
#include <rocksdb/table.h>

#include "absl/strings/str_cat.h"

namespace deltafill {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;

// Memory is bounded by these: memtables of parts, memtables of meta, one cache of blocks.
constexpr size_t kPartsBufferBytes = 64 * kMebibyte;
constexpr int kPartsBuffersMax = 3;
constexpr size_t kMetaBufferBytes = 16 * kMebibyte;
constexpr int kMetaBuffersMax = 2;
constexpr size_t kBlockCacheBytes = 32 * kMebibyte;
static_assert(kPartsBufferBytes * kPartsBuffersMax + kMetaBufferBytes * kMetaBuffersMax +
                  kBlockCacheBytes <=
              256 * kMebibyte);

rocksdb::BlockBasedTableOptions TableOptions(const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.cache_index_and_filter_blocks = true;  // counted in the cache's bound
  table.checksum = rocksdb::kXXH3;             // Debian's build computes CRC32C in software
  return table;
}

// Tables hold records and references to blobs only, so that many of them are no burden; whereas a
// compaction that fails on damage, again and again, must not come to stop all writes.
void NeverStall(rocksdb::ColumnFamilyOptions* options) {
  options->level0_slowdown_writes_trigger = 1 << 20;
  options->level0_stop_writes_trigger = 1 << 20;
  options->soft_pending_compaction_bytes_limit = 0;
  options->hard_pending_compaction_bytes_limit = 0;
}

rocksdb::ColumnFamilyOptions BaseFamilyOptions(const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::ColumnFamilyOptions options;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(TableOptions(cache)));
  options.compression = rocksdb::kNoCompression;
  NeverStall(&options);
  return options;
}

}  // namespace

std::shared_ptr<rocksdb::Cache> NewBlockCache() { return rocksdb::NewLRUCache(kBlockCacheBytes); }

rocksdb::DBOptions StoreDatabaseOptions(rocksdb::Env* env) {
  rocksdb::DBOptions options;
  if (env != nullptr) options.env = env;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  // A damaged record of the log must cost only what it held. Every record here stands for itself
  // (a part, a manifest), parts verify on their own, and a manifest without its parts is a miss; so
  // going on behind the damage is safe, and the default, to drop all that follows, is not.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords;
  options.max_total_wal_size = 256 * kMebibyte;
  options.wal_bytes_per_sync = 4 * kMebibyte;  // starts writing early: PutManifest waits less
  options.bytes_per_sync = 4 * kMebibyte;
  options.max_open_files = 512;
  options.max_background_jobs = 2;
  return options;
}

rocksdb::ColumnFamilyOptions MetaFamilyOptions(const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::ColumnFamilyOptions options = BaseFamilyOptions(cache);
  options.write_buffer_size = kMetaBufferBytes;
  options.max_write_buffer_number = kMetaBuffersMax;
  return options;
}

rocksdb::ColumnFamilyOptions PartsFamilyOptions(const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::ColumnFamilyOptions options = BaseFamilyOptions(cache);
  options.write_buffer_size = kPartsBufferBytes;
  options.max_write_buffer_number = kPartsBuffersMax;
  options.enable_blob_files = true;
  options.min_blob_size = 1024;
  options.blob_file_size = 256 * kMebibyte;
  options.blob_compression_type = rocksdb::kNoCompression;
  // Evicted parts give their space back: the oldest quarter of the blob files is rewritten as
  // compactions pass, and compactions are started when half of those files is garbage.
  options.enable_blob_garbage_collection = true;
  options.blob_garbage_collection_age_cutoff = 0.25;
  options.blob_garbage_collection_force_threshold = 0.5;
  return options;
}

absl::Status FromRocksStatus(const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (status.IsNotFound()) return absl::NotFoundError("no such key");
  const std::string text = absl::StrCat("RocksDB: ", status.ToString());
  if (status.IsCorruption() || status.IsPathNotFound()) return absl::DataLossError(text);
  return absl::UnavailableError(text);
}

}  // namespace deltafill
