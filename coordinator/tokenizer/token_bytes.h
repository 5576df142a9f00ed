// The bytes of every token id, and the id of a whole piece's bytes.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_TOKEN_BYTES_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_TOKEN_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace deltafill::coordinator {

inline constexpr uint32_t kTokenIdsMax = uint32_t{1} << 22;
inline constexpr uint32_t kNoToken = UINT32_MAX;

uint64_t HashPiece(std::string_view piece);

// From id to bytes. Ids may have gaps. Thread-safe once filled.
class TokenBytes {
 public:
  // INVALID_ARGUMENT if the id is at or above kTokenIdsMax or there already.
  absl::Status Put(uint32_t id, std::string_view bytes);

  bool Has(uint32_t id) const { return id < spans_.size() && spans_[id].there; }
  // Empty if the id is not there.
  std::string_view Get(uint32_t id) const {
    return Has(id) ? std::string_view(bytes_).substr(spans_[id].begin, spans_[id].size)
                   : std::string_view();
  }

 private:
  struct Span {
    size_t begin = 0;
    uint32_t size = 0;
    bool there = false;
  };
  std::string bytes_;
  std::vector<Span> spans_;  // by id
};

// From bytes to id, for some of the tokens of a TokenBytes that outlives it. Thread-safe once
// filled.
class WholePieces {
 public:
  WholePieces(const TokenBytes& tokens, size_t entries_max);

  // Does nothing if a token with these bytes is there already.
  void Put(uint32_t id);

  // kNoToken if none. hash: HashPiece(piece).
  uint32_t Get(std::string_view piece, uint64_t hash) const;
  uint32_t Get(std::string_view piece) const { return Get(piece, HashPiece(piece)); }

 private:
  struct Slot {
    uint32_t tag = 0;  // upper half of the hash
    uint32_t id = kNoToken;
  };
  size_t Find(std::string_view piece, uint64_t hash) const;

  const TokenBytes& tokens_;
  std::vector<Slot> slots_;  // open addressing, at most half full
};

// A decoder that adds the bytes of each id.
std::unique_ptr<TokenDecoder> NewBytesOfTokenDecoder(std::shared_ptr<const TokenBytes> shown);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_TOKEN_BYTES_H_
