// Byte-pair encoding of one piece.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_PAIR_MERGING_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_PAIR_MERGING_H_

#include <cstdint>
#include <vector>

#include "coordinator/tokenizer/pair_table.h"

namespace deltafill::coordinator {

// Buffers of MergePairs, reused from call to call.
struct MergeScratch {
  std::vector<uint32_t> ids;  // in: the tokens of the piece's bytes
  std::vector<uint32_t> next, previous;
  std::vector<uint32_t> ranks;
  std::vector<uint64_t> queue;
};

// Merges the pair of lowest rank, of equal ones the leftmost, until none is left, and appends what
// remains to *out. scratch->ids is used up. O(n log n) time; about 30 bytes of memory a token.
void MergePairs(const PairTable& pairs, MergeScratch* scratch, std::vector<uint32_t>* out);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_PAIR_MERGING_H_
