#include "statestore/state_table.h"

#include <algorithm>

namespace deltafill {
namespace {

constexpr size_t kCandidatesMax = 4096;

}  // namespace

StateEntry* StateTable::Find(const StateId& state) {
  const auto found = entries_.find(state);
  return found == entries_.end() ? nullptr : &found->second;
}

StateEntry& StateTable::Add(const StateId& state, const StateEntry& entry) {
  latest_use_us_ = std::max(latest_use_us_, entry.last_use_us);
  return entries_[state] = entry;
}

void StateTable::Touch(StateEntry* entry, int64_t now_us) {
  latest_use_us_ = std::max(latest_use_us_ + 1, now_us);
  entry->last_use_us = latest_use_us_;
}

std::optional<StateId> StateTable::LeastRecentlyUsed() {
  for (int attempt = 0; attempt < 2; ++attempt) {
    while (!candidates_.empty()) {
      const Candidate candidate = candidates_.back();
      candidates_.pop_back();
      const StateEntry* entry = Find(candidate.state);
      if (entry != nullptr && Evictable(*entry) && entry->last_use_us == candidate.last_use_us) {
        return candidate.state;
      }
    }
    GatherCandidates();
  }
  return std::nullopt;
}

void StateTable::GatherCandidates() {
  const auto older = [](const Candidate& a, const Candidate& b) {
    return a.last_use_us < b.last_use_us;
  };
  for (const auto& [state, entry] : entries_) {
    if (!Evictable(entry)) continue;
    if (candidates_.size() == kCandidatesMax) {
      if (entry.last_use_us >= candidates_.front().last_use_us) continue;
      std::pop_heap(candidates_.begin(), candidates_.end(), older);
      candidates_.pop_back();
    }
    candidates_.push_back({entry.last_use_us, state});
    std::push_heap(candidates_.begin(), candidates_.end(), older);
  }
  std::sort(candidates_.begin(), candidates_.end(),
            [&](const Candidate& a, const Candidate& b) { return older(b, a); });
}

std::vector<std::pair<StateId, int64_t>> StateTable::TakeDirty(size_t limit) {
  std::vector<std::pair<StateId, int64_t>> taken;
  for (auto& [state, entry] : entries_) {
    if (!entry.last_use_dirty) continue;
    if (taken.size() == limit) break;
    entry.last_use_dirty = false;
    taken.emplace_back(state, entry.last_use_us);
  }
  return taken;
}

}  // namespace deltafill
