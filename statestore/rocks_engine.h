// The RocksDB engine: column families `meta` and `parts` (blob files).
//
// Durability: both families share one write-ahead log. A synced write syncs every log file that
// has unsynced records, older ones first, not only the current one; and before a flush installs a
// table, the logs it closes are synced. So whatever was written before a synced write is durable
// with it, also across switches of memtables and logs. tests/statestore/disk_fault_test.cc cuts
// files back to what was synced, and so checks this.
//
// After a failed write RocksDB refuses all writes. The next write tries to resume it, and where
// that does not help, to open it anew; reads go on meanwhile.
#ifndef DELTAFILL_STATESTORE_ROCKS_ENGINE_H_
#define DELTAFILL_STATESTORE_ROCKS_ENGINE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "statestore/key_value_engine.h"

namespace rocksdb {
class Env;
}

namespace deltafill {

struct RocksEngineOptions {
  std::string directory;        // created if absent
  rocksdb::Env* env = nullptr;  // not owned; nullptr: the system's. Tests put faults here
  bool sync_writes = true;      // false turns kSynced into kLater: for filling benchmarks only
  std::function<void(const std::string& line)>
      log;  // that writes fail, and work again; may be null
};

// FAILED_PRECONDITION if the directory is open already; DATA_LOSS if RocksDB's own files are
// damaged beyond opening; UNAVAILABLE for other errors of the disk.
absl::StatusOr<std::unique_ptr<KeyValueEngine>> OpenRocksEngine(const RocksEngineOptions& options);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_ROCKS_ENGINE_H_
