#include "worker/runtime/stored_state.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/part_access.h"
#include "worker/runtime/state_parts.h"

namespace deltafill::worker {
namespace {

// Reading and verifying a layer takes longer than a GPU computes it for a short range.
constexpr size_t kReaders = 4;

}  // namespace

absl::StatusOr<std::unique_ptr<StoredState>> StoredState::Begin(StateStore& store,
                                                                std::span<const PartId> parts,
                                                                const StateLayout& layout,
                                                                uint64_t boundary, std::byte* to) {
  std::unique_ptr<StoredState> state(new StoredState(store, layout, to));
  DELTAFILL_TRY_ASSIGN(headers, PartHeaders(layout, boundary));
  for (PartHeader& header : headers) header.layers.resize(1);  // as the store gives what is read
  state->headers_ = std::move(headers);
  state->parts_.assign(parts.begin(), parts.end());
  if (parts.empty()) DELTAFILL_TRY(state->CheckKinds());
  const size_t readers = std::min(kReaders, layout.entries.size());
  try {
    while (state->readers_.size() < readers) {
      state->readers_.emplace_back([state = state.get()] { state->Main(); });
    }
  } catch (const std::system_error&) {
    // The machine has no more threads: what there are read everything.
    if (state->readers_.empty()) state->Main();
  }
  return state;
}

StoredState::StoredState(StateStore& store, const StateLayout& layout, std::byte* to)
    : store_(store), layout_(layout), to_(to), there_(layout.entries.size(), false) {
  const uint32_t first_layer = layout.entries.front().layer;
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    if (layout.entries[i].layer != first_layer) order_.push_back(i);
  }
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    return layout.entries[a].layer < layout.entries[b].layer;
  });
}

StoredState::~StoredState() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& reader : readers_) reader.join();
}

// False when nothing is left to read.
bool StoredState::Take(Next* next) {
  std::unique_lock lock(mutex_);
  if (parts_taken_ < parts_.size() && failure_.ok() && !stopping_) {
    *next = {true, parts_taken_++};
    return true;
  }
  changed_.wait(lock,
                [this] { return parts_known_ == parts_.size() || !failure_.ok() || stopping_; });
  if (!failure_.ok() || stopping_ || entries_taken_ == order_.size()) return false;
  *next = {false, order_[entries_taken_++]};
  return true;
}

void StoredState::Main() {
  Next next;
  while (Take(&next)) {
    absl::Status status = next.is_part ? ReadPart(next.index) : ReadEntry(next.index);
    {
      const std::lock_guard lock(mutex_);
      if (status.ok() && next.is_part && ++parts_known_ == parts_.size()) status = CheckKinds();
      failure_.Update(status);
    }
    changed_.notify_all();
  }
}

absl::Status StoredState::ReadPart(size_t part_index) {
  const PartId& id = parts_[part_index];
  DELTAFILL_TRY_ASSIGN(part, GetStoredPart(store_, id, {&layout_.entries.front().layer, 1}));
  const auto header = std::find(headers_.begin(), headers_.end(), part.header);
  if (header == headers_.end())
    return LostPart(id, "its header is not this model's, or boundary's");
  {
    const std::lock_guard lock(mutex_);
    if (!kinds_.emplace(header->kind, id).second) return LostPart(id, "a second part of its kind");
  }
  return Place(IndexOf(header->layers.front(), header->kind), id, part);
}

size_t StoredState::IndexOf(uint32_t layer, PartKind kind) const {
  return static_cast<size_t>(layout_.Find(layer, kind) - layout_.entries.data());
}

// With the mutex held, or before there are readers.
absl::Status StoredState::CheckKinds() const {
  for (const PartHeader& header : headers_) {
    if (kinds_.contains(header.kind)) continue;
    return absl::DataLossError(
        absl::StrCat("the state has no part of kind ", static_cast<int>(header.kind)));
  }
  return absl::OkStatus();
}

absl::Status StoredState::ReadEntry(size_t entry_index) {
  const StateEntry& entry = layout_.entries[entry_index];
  PartId id;
  {
    const std::lock_guard lock(mutex_);
    id = kinds_.at(entry.kind);
  }
  DELTAFILL_TRY_ASSIGN(part, GetStoredPart(store_, id, {&entry.layer, 1}));
  return Place(entry_index, id, part);
}

absl::Status StoredState::Place(size_t entry_index, const PartId& id, const Part& part) {
  const StateEntry& entry = layout_.entries[entry_index];
  if (part.payload.size() != entry.bytes) {
    return LostPart(id, absl::StrCat("layer ", entry.layer, " has ", part.payload.size(),
                                     " bytes, must have ", entry.bytes));
  }
  std::memcpy(to_ + entry.offset, part.payload.data(), entry.bytes);
  const std::lock_guard lock(mutex_);
  there_[entry_index] = true;
  return absl::OkStatus();
}

absl::StatusOr<const std::byte*> StoredState::Await(const StateEntry& entry) {
  const auto before = std::chrono::steady_clock::now();
  const size_t index = IndexOf(entry.layer, entry.kind);
  absl::Status status;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return there_[index] || !failure_.ok(); });
    if (!there_[index]) status = failure_;
  }
  wait_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  if (!status.ok()) return status;
  return to_ + entry.offset;
}

}  // namespace deltafill::worker
