// RocksDB's own messages, in the file LOG of the store's directory.
#ifndef DELTAFILL_STATESTORE_ROCKS_LOG_H_
#define DELTAFILL_STATESTORE_ROCKS_LOG_H_

#include <rocksdb/env.h>

#include <memory>
#include <string>

namespace deltafill {

// Warnings and errors go behind what LOG holds; a LOG that has grown beyond a mebibyte becomes
// LOG.old first. What cannot be written is lost. For rocksdb::DBOptions::info_log, in place of
// RocksDB's logger, which aborts the process when it has to write once more after the disk was
// full.
std::shared_ptr<rocksdb::Logger> OpenRocksLog(const std::string& directory);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_ROCKS_LOG_H_
