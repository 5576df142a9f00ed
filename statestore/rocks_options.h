// RocksDB's settings for a store, and its status codes in ours.
#ifndef DELTAFILL_STATESTORE_ROCKS_OPTIONS_H_
#define DELTAFILL_STATESTORE_ROCKS_OPTIONS_H_

#include <rocksdb/options.h>
#include <rocksdb/status.h>

#include <memory>

#include "absl/status/status.h"

namespace deltafill {

rocksdb::DBOptions StoreDatabaseOptions(rocksdb::Env* env);
rocksdb::ColumnFamilyOptions MetaFamilyOptions(const std::shared_ptr<rocksdb::Cache>& cache);
rocksdb::ColumnFamilyOptions PartsFamilyOptions(const std::shared_ptr<rocksdb::Cache>& cache);
std::shared_ptr<rocksdb::Cache> NewBlockCache();

// See key_value_engine.h for the codes.
absl::Status FromRocksStatus(const rocksdb::Status& status);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_ROCKS_OPTIONS_H_
