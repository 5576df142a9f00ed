#include "coordinator/tokenizer/pair_merging.h"

#include <algorithm>
#include <cstddef>
#include <functional>

namespace deltafill::coordinator {
namespace {

// Up to here walking all pairs for each merge is faster than a queue of them.
constexpr size_t kShortTokensMax = 64;

void MergeShort(const PairTable& pairs, MergeScratch* scratch, std::vector<uint32_t>* out) {
  uint32_t* const ids = scratch->ids.data();
  size_t count = scratch->ids.size();
  uint32_t ranks[kShortTokensMax];  // of the pair that starts here
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = pairs.Get(ids[i], ids[i + 1]).rank;
  while (count > 1) {
    const uint32_t* const lowest = std::min_element(ranks, ranks + count - 1);
    if (*lowest == kNoRank) break;
    const auto at = static_cast<size_t>(lowest - ranks);
    ids[at] = pairs.Get(ids[at], ids[at + 1]).merged;
    std::copy(ids + at + 2, ids + count, ids + at + 1);
    std::copy(ranks + at + 1, ranks + count - 1, ranks + at);
    --count;
    if (at + 1 < count) ranks[at] = pairs.Get(ids[at], ids[at + 1]).rank;
    if (at > 0) ranks[at - 1] = pairs.Get(ids[at - 1], ids[at]).rank;
  }
  out->insert(out->end(), ids, ids + count);
}

// A linked list of tokens and a queue of pairs, the first to merge on top. An entry is a rank and
// the place of the pair's left token; it is out of date if the pair there has another rank now.
class LongPiece {
 public:
  LongPiece(const PairTable& pairs, MergeScratch* scratch)
      : pairs_(pairs),
        ids_(scratch->ids),
        next_(scratch->next),
        previous_(scratch->previous),
        ranks_(scratch->ranks),
        queue_(scratch->queue) {
    const size_t count = ids_.size();
    next_.resize(count);
    previous_.resize(count);
    ranks_.resize(count);
    queue_.clear();
    for (size_t i = 0; i < count; ++i) {
      next_[i] = static_cast<uint32_t>(i + 1);
      previous_[i] = static_cast<uint32_t>(i) - 1;  // wraps for the first one, which is not asked
      ranks_[i] = i + 1 < count ? pairs_.Get(ids_[i], ids_[i + 1]).rank : kNoRank;
      if (ranks_[i] != kNoRank) queue_.push_back(Entry(ranks_[i], static_cast<uint32_t>(i)));
    }
    std::make_heap(queue_.begin(), queue_.end(), std::greater<>());
  }

  void Merge() {
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
      const uint64_t entry = queue_.back();
      queue_.pop_back();
      const auto at = static_cast<uint32_t>(entry);
      if (ranks_[at] == static_cast<uint32_t>(entry >> 32)) MergeAt(at);
    }
  }

  void AppendTo(std::vector<uint32_t>* out) const {
    for (size_t i = 0; i < ids_.size(); i = next_[i]) out->push_back(ids_[i]);
  }

 private:
  static uint64_t Entry(uint32_t rank, uint32_t at) { return uint64_t{rank} << 32 | at; }

  void MergeAt(uint32_t at) {
    const uint32_t right = next_[at];
    ids_[at] = pairs_.Get(ids_[at], ids_[right]).merged;
    next_[at] = next_[right];
    ranks_[right] = kNoRank;
    if (next_[at] < ids_.size()) previous_[next_[at]] = at;
    Rank(at);
    if (at > 0) Rank(previous_[at]);
  }

  void Rank(uint32_t at) {
    ranks_[at] = next_[at] < ids_.size() ? pairs_.Get(ids_[at], ids_[next_[at]]).rank : kNoRank;
    if (ranks_[at] == kNoRank) return;
    queue_.push_back(Entry(ranks_[at], at));
    std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
  }

  const PairTable& pairs_;
  std::vector<uint32_t>& ids_;
  std::vector<uint32_t>& next_;  // ids_.size(): none
  std::vector<uint32_t>& previous_;
  std::vector<uint32_t>& ranks_;  // of the pair that starts here; kNoRank where the token is gone
  std::vector<uint64_t>& queue_;
};

}  // namespace

void MergePairs(const PairTable& pairs, MergeScratch* scratch, std::vector<uint32_t>* out) {
  if (scratch->ids.size() <= kShortTokensMax) {
    MergeShort(pairs, scratch, out);
    return;
  }
  LongPiece piece(pairs, scratch);
  piece.Merge();
  piece.AppendTo(out);
}

}  // namespace deltafill::coordinator
