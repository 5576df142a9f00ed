// Which order a snapshot's files get, and when another one pays for itself.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_ORDER_CHOICE_H_
#define DELTAFILL_CLIENT_SNAPSHOT_ORDER_CHOICE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/snapshot/composed_snapshot.h"
#include "client/snapshot/source_tree.h"

namespace deltafill::client {

// An order of segments (one a file, as the tree has them) by git's history, which sets their rates;
// by the rates they have (has_kept), or by path, where there is no history.
absl::StatusOr<std::vector<uint32_t>> OrderByHistory(const SourceTree& tree, bool has_kept,
                                                     std::vector<ComposedSegment>* segments);

// After an update: sets snapshot->proposal to what --reorder would do if that pays. Both orders are
// judged by the same history. as_it_is: the tree's files in the snapshot's order.
absl::Status ProposeOrder(const SourceTree& tree, const std::vector<uint32_t>& as_it_is,
                          ComposedSnapshot* snapshot);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_ORDER_CHOICE_H_
