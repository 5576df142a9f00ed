#include "coordinator/tokenizer/token_bytes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace deltafill::coordinator {
namespace {

class BytesOfTokenDecoder final : public TokenDecoder {
 public:
  explicit BytesOfTokenDecoder(std::shared_ptr<const TokenBytes> shown)
      : shown_(std::move(shown)) {}
  std::string Push(uint32_t id) override { return std::string(shown_->Get(id)); }

 private:
  const std::shared_ptr<const TokenBytes> shown_;
};

}  // namespace

uint64_t HashPiece(std::string_view piece) { return XXH3_64bits(piece.data(), piece.size()); }

absl::Status TokenBytes::Put(uint32_t id, std::string_view bytes) {
  if (id >= kTokenIdsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("token id ", id, ": ids must be below ", kTokenIdsMax));
  }
  if (Has(id)) return absl::InvalidArgumentError(absl::StrCat("token id ", id, ": is there twice"));
  if (id >= spans_.size()) spans_.resize(id + 1);
  spans_[id] = {bytes_.size(), static_cast<uint32_t>(bytes.size()), true};
  bytes_ += bytes;
  return absl::OkStatus();
}

WholePieces::WholePieces(const TokenBytes& tokens, size_t entries_max) : tokens_(tokens) {
  size_t slots = 16;
  while (slots < entries_max * 2) slots *= 2;
  slots_.resize(slots);
}

size_t WholePieces::Find(std::string_view piece, uint64_t hash) const {
  const auto tag = static_cast<uint32_t>(hash >> 32);
  size_t slot = hash & (slots_.size() - 1);
  while (slots_[slot].id != kNoToken &&
         (slots_[slot].tag != tag || tokens_.Get(slots_[slot].id) != piece)) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

void WholePieces::Put(uint32_t id) {
  const std::string_view piece = tokens_.Get(id);
  const uint64_t hash = HashPiece(piece);
  Slot& slot = slots_[Find(piece, hash)];
  if (slot.id == kNoToken) slot = {static_cast<uint32_t>(hash >> 32), id};
}

uint32_t WholePieces::Get(std::string_view piece, uint64_t hash) const {
  return slots_[Find(piece, hash)].id;
}

std::unique_ptr<TokenDecoder> NewBytesOfTokenDecoder(std::shared_ptr<const TokenBytes> shown) {
  return std::make_unique<BytesOfTokenDecoder>(std::move(shown));
}

}  // namespace deltafill::coordinator
