// A byte-level vocabulary with its merges: what encodes one piece.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_BPE_MODEL_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_BPE_MODEL_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "coordinator/tokenizer/pair_merging.h"
#include "coordinator/tokenizer/pair_table.h"
#include "coordinator/tokenizer/token_bytes.h"

namespace deltafill::coordinator {

// Thread-safe once it is filled.
class BpeModel {
 public:
  // The tokens outlive the model.
  BpeModel(const TokenBytes& tokens, size_t pairs_max, size_t whole_pieces_max)
      : pairs_(pairs_max), whole_pieces_(tokens, whole_pieces_max) {
    byte_tokens_.fill(kNoToken);
  }

  void PutByte(uint8_t byte, uint32_t id) { byte_tokens_[byte] = id; }
  void PutPair(uint32_t left, uint32_t right, PairMerge merge) { pairs_.Put(left, right, merge); }
  // A piece that is this token's bytes is this token, whatever merging would make of it. Does
  // nothing if a token with these bytes is there already.
  void PutWholePiece(uint32_t id) { whole_pieces_.Put(id); }

  uint32_t ByteToken(uint8_t byte) const { return byte_tokens_[byte]; }

  // Appends the tokens of a piece. hash: HashPiece(piece). False, with nothing appended, if one of
  // its bytes has no token.
  bool AppendPiece(std::string_view piece, uint64_t hash, MergeScratch* scratch,
                   std::vector<uint32_t>* out) const {
    const uint32_t whole = whole_pieces_.Get(piece, hash);
    if (whole == kNoToken) return AppendMerged(piece, scratch, out);
    out->push_back(whole);
    return true;
  }

  // The same by merging alone.
  bool AppendMerged(std::string_view piece, MergeScratch* scratch,
                    std::vector<uint32_t>* out) const;

 private:
  std::array<uint32_t, 256> byte_tokens_;
  PairTable pairs_;
  WholePieces whole_pieces_;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_BPE_MODEL_H_
