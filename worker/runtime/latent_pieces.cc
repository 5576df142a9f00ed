#include "worker/runtime/latent_pieces.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/finite_scan.h"
#include "worker/runtime/part_access.h"

namespace deltafill::worker {

LatentPiece TakePiece(const SequenceLatents& latents, uint64_t end) {
  LatentPiece piece;
  const uint64_t index = (end - 1) / kLatentPieceTokens;
  piece.first_token = index * kLatentPieceTokens;
  piece.token_count = end - piece.first_token;
  for (uint32_t layer : latents.cache().layout().layers) {
    piece.pages.push_back(latents.cache().Page(layer, index));
  }
  piece.claim = latents.claim();
  return piece;
}

std::vector<LatentPiece> TakePieces(const SequenceLatents& latents, uint64_t begin, uint64_t end) {
  std::vector<LatentPiece> pieces;
  uint64_t piece_end = begin / kLatentPieceTokens * kLatentPieceTokens;
  while (piece_end < end) {
    piece_end = std::min(piece_end + kLatentPieceTokens, end);
    pieces.push_back(TakePiece(latents, piece_end));
  }
  return pieces;
}

PartHeader LatentHeader(const LatentLayout& layout, uint64_t first_token, uint64_t token_count) {
  PartHeader header;
  header.kind = PartKind::kLatent;
  header.dtype = layout.dtype;
  header.layers = layout.layers;
  header.shape = {static_cast<uint32_t>(token_count), layout.width, 1, 1};
  header.first_token = first_token;
  header.token_count = token_count;
  return header;
}

PieceRows RowsInPages(const LatentPiece& piece) {
  PieceRows rows;
  for (const LatentPage& page : piece.pages) {
    rows.push_back(static_cast<const std::byte*>(page->get()));
  }
  return rows;
}

absl::Status CheckPieceFinite(const LatentLayout& layout, const LatentPiece& piece,
                              const PieceRows& rows) {
  const size_t bytes = piece.token_count * layout.RowBytes();
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t found = FindNonFinite(layout.dtype, {rows[i], bytes});
    if (found == piece.token_count * layout.width) continue;
    return absl::InternalError(absl::StrCat("latent of layer ", layout.layers[i], ", token ",
                                            piece.first_token + found / layout.width,
                                            ": a value is not finite"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PartReceipt> PutPiece(StateStore& store, const std::string& tenant,
                                     const LatentLayout& layout, const LatentPiece& piece,
                                     const PieceRows& rows) {
  std::vector<std::span<const std::byte>> layers;
  for (const std::byte* layer : rows) {
    layers.emplace_back(layer, piece.token_count * layout.RowBytes());
  }
  return PutPartWithRetry(store, tenant, LatentHeader(layout, piece.first_token, piece.token_count),
                          layers);
}

}  // namespace deltafill::worker
