#include "worker/runtime/stored_state.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/part_access.h"
#include "worker/runtime/state_parts.h"

namespace deltafill::worker {
namespace {

// Reading and verifying a layer takes longer than a GPU computes it for a short range.
constexpr size_t kReadersMax = 4;

}  // namespace

absl::StatusOr<std::unique_ptr<StoredState>> StoredState::Begin(StateStore& store,
                                                                std::span<const PartId> parts,
                                                                const StateLayout& layout,
                                                                uint64_t boundary, std::byte* to) {
  std::unique_ptr<StoredState> state(new StoredState(store, parts, layout, to));
  DELTAFILL_TRY_ASSIGN(headers, PartHeaders(layout, boundary));
  for (PartHeader& header : headers) header.layers.resize(1);  // as the store gives what is read
  state->headers_ = std::move(headers);
  if (parts.empty()) DELTAFILL_TRY(state->CheckKinds());
  const PartReads reads{.count = parts.size() + state->later_.size(),
                        .first = parts.size(),
                        .readers_max = kReadersMax};
  state->readers_.emplace(reads,
                          [state = state.get()](size_t index) { return state->Read(index); });
  return state;
}

StoredState::StoredState(StateStore& store, std::span<const PartId> parts,
                         const StateLayout& layout, std::byte* to)
    : store_(store), layout_(layout), to_(to), parts_(parts.begin(), parts.end()) {
  const uint32_t first_layer = layout.entries.front().layer;
  for (const StateEntry& entry : layout.entries) {
    if (entry.layer != first_layer) later_.push_back(&entry);
  }
  std::stable_sort(later_.begin(), later_.end(),
                   [](const StateEntry* a, const StateEntry* b) { return a->layer < b->layer; });
  for (size_t i = 0; i < later_.size(); ++i) read_of_[later_[i]] = parts_.size() + i;
}

absl::Status StoredState::Read(size_t index) {
  return index < parts_.size() ? ReadPart(parts_[index])
                               : ReadEntry(*later_[index - parts_.size()]);
}

absl::Status StoredState::ReadPart(const PartId& id) {
  const uint32_t first_layer = layout_.entries.front().layer;
  DELTAFILL_TRY_ASSIGN(part, GetStoredPart(store_, id, {&first_layer, 1}));
  if (std::find(headers_.begin(), headers_.end(), part.header) == headers_.end()) {
    return LostPart(id, "its header is not this model's, or boundary's");
  }
  DELTAFILL_TRY(AddKind(part.header.kind, id));
  return Place(*layout_.Find(first_layer, part.header.kind), id, part);
}

absl::Status StoredState::AddKind(PartKind kind, const PartId& id) {
  const std::lock_guard lock(mutex_);
  if (!kinds_.emplace(kind, id).second) return LostPart(id, "a second part of its kind");
  return kinds_.size() < parts_.size() ? absl::OkStatus() : CheckKinds();
}

absl::Status StoredState::CheckKinds() const {
  for (const PartHeader& header : headers_) {
    if (kinds_.contains(header.kind)) continue;
    return absl::DataLossError(
        absl::StrCat("the state has no part of kind ", static_cast<int>(header.kind)));
  }
  return absl::OkStatus();
}

absl::Status StoredState::ReadEntry(const StateEntry& entry) {
  const PartId& id = kinds_.at(entry.kind);
  DELTAFILL_TRY_ASSIGN(part, GetStoredPart(store_, id, {&entry.layer, 1}));
  return Place(entry, id, part);
}

absl::Status StoredState::Place(const StateEntry& entry, const PartId& id, const Part& part) {
  if (part.payload.size() != entry.bytes) {
    return LostPart(id, absl::StrCat("layer ", entry.layer, " has ", part.payload.size(),
                                     " bytes, must have ", entry.bytes));
  }
  std::memcpy(to_ + entry.offset, part.payload.data(), entry.bytes);
  return absl::OkStatus();
}

absl::StatusOr<const std::byte*> StoredState::Await(const StateEntry& entry) {
  const auto before = std::chrono::steady_clock::now();
  const auto later = read_of_.find(layout_.Find(entry.layer, entry.kind));
  absl::Status status;
  if (later != read_of_.end()) {
    status = readers_->Await(later->second);
  } else {
    // Which part has it is known once all are.
    for (size_t part = 0; part < parts_.size(); ++part) status.Update(readers_->Await(part));
  }
  wait_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  if (!status.ok()) return status;
  return to_ + entry.offset;
}

}  // namespace deltafill::worker
