#include "worker/runtime/stored_state.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/part_access.h"
#include "worker/runtime/state_parts.h"

namespace deltafill::worker {
namespace {

absl::StatusOr<Part> GetLayer(StateStore& store, const PartId& id, uint32_t layer) {
  absl::StatusOr<Part> part = store.GetPart(id, {&layer, 1});
  if (!absl::IsNotFound(part.status())) return part;
  return LostPart(id, absl::StrCat("it, or its layer ", layer, ", is not in the store"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoredState>> StoredState::Open(StateStore& store,
                                                               std::span<const PartId> parts,
                                                               const StateLayout& layout,
                                                               uint64_t boundary) {
  std::unique_ptr<StoredState> state(new StoredState(store));
  DELTAFILL_TRY_ASSIGN(headers, PartHeaders(layout, boundary));
  for (PartHeader& header : headers) header.layers.resize(1);  // as the store gives what is read
  for (const PartId& id : parts) {
    DELTAFILL_TRY_ASSIGN(part, GetLayer(store, id, layout.entries.front().layer));
    const auto header = std::find(headers.begin(), headers.end(), part.header);
    if (header == headers.end()) {
      return LostPart(id, absl::StrCat("its header is not this model's at boundary ", boundary));
    }
    if (!state->parts_.emplace(header->kind, id).second) {
      return LostPart(id, "a second part of its kind");
    }
  }
  for (const PartHeader& header : headers) {
    if (state->parts_.contains(header.kind)) continue;
    return absl::DataLossError(
        absl::StrCat("the state has no part of kind ", static_cast<int>(header.kind)));
  }
  return state;
}

absl::Status StoredState::Read(const StateEntry& entry, std::byte* to) const {
  const PartId& id = parts_.at(entry.kind);
  DELTAFILL_TRY_ASSIGN(part, GetLayer(store_, id, entry.layer));
  if (part.payload.size() != entry.bytes) {
    return LostPart(id, absl::StrCat("layer ", entry.layer, " has ", part.payload.size(),
                                     " bytes, must have ", entry.bytes));
  }
  std::memcpy(to, part.payload.data(), entry.bytes);
  return absl::OkStatus();
}

}  // namespace deltafill::worker
