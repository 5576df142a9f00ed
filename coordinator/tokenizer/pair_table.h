// Which pairs of tokens merge, how early, and into what.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_PAIR_TABLE_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_PAIR_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deltafill::coordinator {

inline constexpr uint32_t kNoRank = UINT32_MAX;

struct PairMerge {
  uint32_t rank = kNoRank;  // lower ranks merge first; kNoRank: the pair does not merge
  uint32_t merged = 0;      // token id
};

// Open addressing, at most half full: a look-up is one cache line as a rule. Thread-safe once
// filled.
class PairTable {
 public:
  explicit PairTable(size_t pairs_max) {
    size_t slots = 16;
    while (slots < pairs_max * 2) slots *= 2;
    slots_.resize(slots);
    shift_ = 64 - Log2(slots);
  }

  // The last merge given for a pair counts.
  void Put(uint32_t left, uint32_t right, PairMerge merge) {
    Slot& slot = slots_[Find(Key(left, right))];
    slot = {Key(left, right), merge};
  }

  PairMerge Get(uint32_t left, uint32_t right) const {
    return slots_[Find(Key(left, right))].merge;
  }

 private:
  struct Slot {
    uint64_t key = UINT64_MAX;  // free
    PairMerge merge;
  };

  static uint64_t Key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

  static int Log2(size_t power) {
    int bits = 0;
    while (power >>= 1) ++bits;
    return bits;
  }

  size_t Find(uint64_t key) const {
    size_t slot = (key ^ key >> 29) * 0x9E3779B97F4A7C15 >> shift_;
    while (slots_[slot].key != key && slots_[slot].key != UINT64_MAX) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  std::vector<Slot> slots_;
  int shift_ = 0;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_PAIR_TABLE_H_
