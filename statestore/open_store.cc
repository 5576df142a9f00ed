// The two engines behind the store interface.
#include "statestore/engine_store.h"
#include "statestore/rocks_engine.h"

namespace deltafill {
namespace {

EngineStoreOptions ToEngineStoreOptions(const StoreOptions& options) {
  EngineStoreOptions engine_options;
  engine_options.budget_bytes = options.budget_bytes;
  engine_options.log = options.log;
  return engine_options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> OpenRocksStore(const StoreOptions& options) {
  if (options.directory.empty()) {
    return absl::InvalidArgumentError("directory: must not be empty");
  }
  absl::StatusOr<std::unique_ptr<KeyValueEngine>> engine =
      OpenRocksEngine({.directory = options.directory, .log = options.log});
  if (!engine.ok()) return engine.status();
  absl::StatusOr<std::unique_ptr<EngineStore>> store =
      EngineStore::Open(*std::move(engine), ToEngineStoreOptions(options));
  if (!store.ok()) return store.status();
  return std::unique_ptr<StateStore>(*std::move(store));
}

std::unique_ptr<StateStore> NewMemoryStore(const StoreOptions& options) {
  return *EngineStore::Open(NewMemoryEngine(), ToEngineStoreOptions(options));
}

}  // namespace deltafill
