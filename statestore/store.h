// The state store: parts and the manifests that publish them. One narrow interface with a RocksDB
// engine, an in-memory engine and a gRPC client; callers cannot tell where bytes live.
//
// Promises (DESIGN section 6):
//  - A state is visible only through its manifest, which is written last, in one synced batch, and
//    only when every part it names is there. Otherwise it is a miss.
//  - Every read verifies checksums. A part that fails is quarantined: its states become misses with
//    a reason, until the state is stored again.
//  - Parts without a manifest are kept by leases (kLeaseDuration) and vanish with them.
//
// All methods are thread-safe and block on disk or network; never call them from a gRPC callback.
// UNAVAILABLE: the store cannot be reached or its disk refuses writes; retrying is safe.
#ifndef DELTAFILL_STATESTORE_STORE_H_
#define DELTAFILL_STATESTORE_STORE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "statestore/identity.h"
#include "statestore/part.h"
#include "statestore/snapshot_records.h"

namespace deltafill {

inline constexpr std::chrono::minutes kLeaseDuration{10};

struct PartReceipt {
  PartId id;
  PartKind kind = PartKind::kRecurrent;
  uint64_t bytes = 0;     // encoded size
  uint64_t lease_id = 0;  // of this put; 0 is never a lease
};

struct PartRef {
  PartId id;
  PartKind kind = PartKind::kRecurrent;
  uint64_t bytes = 0;
  friend bool operator==(const PartRef&, const PartRef&) = default;
};

struct Manifest {
  StateId state;
  std::string tenant;
  ModelFingerprint fingerprint;
  std::string numerics;   // the string, for messages; its hash is in the key
  uint64_t boundary = 0;  // tokens, a positive multiple of 64
  StateId root;           // of the key chain
  std::vector<PartRef> parts;
  int64_t created_unix_ms = 0;
  bool pinned = false;
  std::string damage;  // set by List alone: why the state is a miss; "" if nothing is known
};

// Limits; INVALID_ARGUMENT beyond them.
inline constexpr size_t kTenantBytesMax = 128;
inline constexpr size_t kNumericsBytesMax = 512;
inline constexpr size_t kManifestPartsMax = 8192;
inline constexpr size_t kChainLengthMax = 65'536;  // 4 Mi tokens
inline constexpr size_t kLeasesPerCallMax = 65'536;
inline constexpr size_t kListPageMax = 1000;
inline constexpr uint64_t kBoundaryMax = uint64_t{1} << 40;  // tokens
static_assert(kChainLengthMax * kBlockTokenCount == size_t{4} << 20);

struct FindResult {
  std::optional<Manifest> manifest;  // of the deepest whole state; none: a miss
  size_t chain_index = 0;            // into the chain, if found
  std::string miss_reason;           // why deeper boundaries were passed over; "" if there was none
};

enum class PutManifestOutcome { kPublished, kAlreadyThere, kDeterminismMismatch };

struct Part {
  PartHeader header;
  std::vector<std::byte>
      payload;  // of the layers asked for, back to back; header.layers names them
};

struct ManifestPage {
  std::vector<Manifest> manifests;  // ascending by state id
  std::string next_page;            // "" at the end
};

struct StoreStats {
  uint64_t states = 0;
  uint64_t parts = 0;
  uint64_t bytes = 0;         // encoded parts
  uint64_t budget_bytes = 0;  // 0: unlimited
  uint64_t evicted_states = 0;
  uint64_t quarantined_parts = 0;
  uint64_t determinism_mismatches = 0;
};

class StateStore : public SnapshotRecords {
 public:
  // The tenant's salt; made from the system's randomness and synced at first use. Tenant names have
  // 1 to 128 bytes; INVALID_ARGUMENT otherwise.
  virtual absl::StatusOr<TenantSalt> GetTenantSalt(std::string_view tenant) = 0;

  // Stores a part if it is not there, under a fresh lease. Durable only with its manifest.
  // RESOURCE_EXHAUSTED if the byte budget cannot hold it whatever is evicted.
  virtual absl::StatusOr<PartReceipt> PutPart(std::string_view tenant, const PartHeader& header,
                                              LayerPayloads payloads) = 0;

  // Reads and verifies the layers asked for (empty: all of them; layer indices as in the header).
  // NOT_FOUND: no such part or layer. DATA_LOSS: a checksum failed and the part is now quarantined.
  virtual absl::StatusOr<Part> GetPart(const PartId& id, std::span<const uint32_t> layers) = 0;

  // Fresh leases on parts that are there, one a part in the order given, so that they can be named
  // by one more manifest. All or none: NOT_FOUND naming the first part that is absent or known to
  // be damaged. Does not read them. At most kManifestPartsMax parts.
  virtual absl::StatusOr<std::vector<PartReceipt>> LeaseParts(std::span<const PartId> parts) = 0;

  // NOT_FOUND if some had run out or never were; the others are renewed nevertheless.
  virtual absl::Status RenewLeases(std::span<const uint64_t> lease_ids) = 0;
  // Unknown ones are ignored.
  virtual absl::Status ReleaseLeases(std::span<const uint64_t> lease_ids) = 0;

  // Publishes a state: checks that every part is there and whole, turns the leases into references
  // and syncs, atomically. FAILED_PRECONDITION naming the part otherwise. If the state is there
  // already, equal part ids are a success; different ones keep the old manifest, count a
  // determinism mismatch and log it (an old state that is damaged is replaced: kPublished).
  virtual absl::StatusOr<PutManifestOutcome> PutManifest(const Manifest& manifest,
                                                         std::span<const uint64_t> lease_ids) = 0;

  // NOT_FOUND, the same text, if it is absent or another tenant's; NOT_FOUND saying which part if
  // it is known to be damaged, for a damaged state is a miss. Does not read the parts.
  virtual absl::StatusOr<Manifest> GetManifest(std::string_view tenant, const StateId& state) = 0;

  // The deepest state of an ascending key chain whose manifest is the tenant's and whose boundary
  // is first_boundary + 64 * index; with verify, also every part is read and checked, and damaged
  // ones are passed over. Marks the state as used. Holds nothing: a state that is evicted before
  // its parts were read shows as NOT_FOUND from GetPart, and is then a miss.
  virtual absl::StatusOr<FindResult> FindDeepest(std::string_view tenant,
                                                 std::span<const StateId> chain,
                                                 uint64_t first_boundary, bool verify) = 0;

  // The tenant's states, damaged ones included; limit is 1 to kListPageMax.
  virtual absl::StatusOr<ManifestPage> List(std::string_view tenant, std::string_view page,
                                            size_t limit) = 0;
  // NOT_FOUND as in GetManifest, but damaged states are found. FAILED_PRECONDITION if a snapshot
  // record holds it.
  virtual absl::Status Delete(std::string_view tenant, const StateId& state) = 0;
  virtual absl::Status SetPinned(std::string_view tenant, const StateId& state, bool pinned) = 0;
  virtual absl::StatusOr<StoreStats> GetStats() = 0;
};

struct StoreOptions {
  std::string directory;      // created if absent; "" for the in-memory engine
  uint64_t budget_bytes = 0;  // encoded parts; 0: unlimited. LRU over unpinned states
  // One line for each damaged part, determinism mismatch and failed write. Called from any thread,
  // never with a lock held; must not call the store. Default: standard error.
  std::function<void(const std::string& line)> log;
};

// FAILED_PRECONDITION if another process has the directory open, or its format is newer than ours.
// Reads the records of all states: about 3 s for a million.
absl::StatusOr<std::unique_ptr<StateStore>> OpenRocksStore(const StoreOptions& options);
std::unique_ptr<StateStore> NewMemoryStore(const StoreOptions& options);

// A client of a StateStoreService at `address` (host:port); connects lazily.
absl::StatusOr<std::unique_ptr<StateStore>> ConnectStore(const std::string& address);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_STORE_H_
