#include "coordinator/tokenizer/piece_encoder.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace deltafill::coordinator {
namespace {

constexpr size_t kSeenMin = 64;
constexpr size_t kSeenMax = size_t{1} << 15;
constexpr size_t kSeenBytesMax = 64;  // longer pieces are rare, and rarely come again

size_t SeenEntries(size_t text_bytes) {
  size_t entries = kSeenMin;
  while (entries < kSeenMax && entries < text_bytes / 8) entries *= 2;
  return entries;
}

}  // namespace

absl::Status CheckTextSize(std::string_view text) {
  if (text.size() < UINT32_MAX) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("text: ", text.size(), " bytes; must be below ", UINT32_MAX));
}

PieceEncoder::PieceEncoder(const BpeModel& model, size_t text_bytes)
    : model_(model), seen_(SeenEntries(text_bytes)) {
  ids_.reserve(text_bytes / 4 + 16);
}

void PieceEncoder::OnPiece(std::string_view piece) {
  if (piece.size() == 1) {
    if (const uint32_t id = model_.ByteToken(static_cast<uint8_t>(piece[0])); id != kNoToken) {
      ids_.push_back(id);
      return;
    }
  }
  const uint64_t hash = HashPiece(piece);
  if (piece.size() > kSeenBytesMax) return Encode(piece, hash);
  Seen& seen = seen_[hash & (seen_.size() - 1)];
  const auto tag = static_cast<uint32_t>(hash >> 32);
  if (seen.tag == tag && seen.bytes == piece.size() &&
      std::memcmp(seen.piece, piece.data(), piece.size()) == 0) {
    for (uint32_t i = 0; i < seen.ids_count; ++i) ids_.push_back(ids_[seen.ids_begin + i]);
    return;
  }
  const size_t begin = ids_.size();
  Encode(piece, hash);
  seen = {piece.data(), static_cast<uint32_t>(piece.size()), tag, static_cast<uint32_t>(begin),
          static_cast<uint32_t>(ids_.size() - begin)};
}

void PieceEncoder::Encode(std::string_view piece, uint64_t hash) {
  if (model_.AppendPiece(piece, hash, &scratch_, &ids_) || !status_.ok()) return;
  const auto missing = std::find_if(piece.begin(), piece.end(), [this](char byte) {
    return model_.ByteToken(static_cast<uint8_t>(byte)) == kNoToken;
  });
  status_ = absl::InvalidArgumentError(
      absl::StrCat("text: the tokenizer has no token for the byte ",
                   missing == piece.end() ? 0 : static_cast<int>(static_cast<uint8_t>(*missing))));
}

}  // namespace deltafill::coordinator
