// From a source tree to a snapshot's tokens: each file rendered and tokenized by itself, in the
// order that is kept with the snapshot or, for a new one, that history suggests. Equal trees in
// equal orders give equal tokens.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_COMPOSED_SNAPSHOT_H_
#define DELTAFILL_CLIENT_SNAPSHOT_COMPOSED_SNAPSHOT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/snapshot/source_tree.h"

namespace deltafill::client {

using Tokenize = std::function<absl::StatusOr<std::vector<uint32_t>>(std::string_view text)>;

// One file of a snapshot, as the service keeps it.
struct KeptSegment {
  std::string path;
  std::string content_hash;  // 16 bytes: of its rendering
  uint64_t tokens = 0;
  double change_rate = 0.0;
  double first_change = 0.0;
};

struct ComposedSegment {
  KeptSegment kept;
  std::vector<uint32_t> tokens;
};

// The order that kHistory would make now pays for itself soon: looked for when an update recomputes
// much.
struct OrderProposal {
  double tokens_saved = 0.0;  // expected, an update
  uint64_t tokens_once = 0;   // what changing the order recomputes
};

struct ComposedSnapshot {
  std::vector<uint32_t> header;
  std::vector<ComposedSegment> segments;  // in order
  uint64_t tokens = 0;
  uint32_t changed_files = 0;  // against what was kept: edited, new, or no longer there
  std::string first_changed;   // path of the first segment that differs; "" if none does
  std::optional<OrderProposal> proposal;
};

enum class OrderSource {
  kHistory,  // anew: from git's history; from the kept rates if there is none; by path otherwise
  kKept,     // as kept; new files last, by path
};

// kept: the snapshot to update, or whose order to take over; may be empty. learn: the differences
// are one more observed update. Fails if tokenizing does.
absl::StatusOr<ComposedSnapshot> ComposeSnapshot(const SourceTree& tree, const Tokenize& tokenize,
                                                 std::span<const KeptSegment> kept,
                                                 OrderSource order, bool learn);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_COMPOSED_SNAPSHOT_H_
