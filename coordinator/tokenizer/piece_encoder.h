// One call's encoding: pieces in, token ids out.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_PIECE_ENCODER_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_PIECE_ENCODER_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/tokenizer/bpe_model.h"
#include "coordinator/tokenizer/piece_splitter.h"

namespace deltafill::coordinator {

// INVALID_ARGUMENT for text of 4 GiB or more: places in it have 32 bits.
absl::Status CheckTextSize(std::string_view text);

// Frequent pieces are merged once: an entry remembers where in the text a piece stood and which
// ids came of it. So the cache owns nothing, is bounded, and needs no lock.
class PieceEncoder final : public PieceSink {
 public:
  // text_bytes: about how much text will come. Pieces must outlive the encoder.
  PieceEncoder(const BpeModel& model, size_t text_bytes);

  void OnPiece(std::string_view piece) override;
  void OnToken(uint32_t id) { ids_.push_back(id); }

  // INVALID_ARGUMENT if a byte of the text has no token.
  absl::Status status() const { return status_; }
  std::vector<uint32_t> TakeIds() { return std::move(ids_); }

 private:
  struct Seen {
    const char* piece = nullptr;
    uint32_t bytes = 0;
    uint32_t tag = 0;  // upper half of the hash
    uint32_t ids_begin = 0;
    uint32_t ids_count = 0;
  };

  void Encode(std::string_view piece, uint64_t hash);

  const BpeModel& model_;
  MergeScratch scratch_;
  std::vector<Seen> seen_;  // by the hash's low bits; a later piece takes an earlier one's place
  std::vector<uint32_t> ids_;
  absl::Status status_;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_PIECE_ENCODER_H_
