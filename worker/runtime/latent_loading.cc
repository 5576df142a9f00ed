// Latents from the state store into a cache: some threads read and check pieces, one copies them.
#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/latent_pieces.h"
#include "worker/runtime/part_access.h"
#include "worker/runtime/part_readers.h"

namespace deltafill::worker {
namespace {

// Each reads a piece, some 30 MB of a large model; this many more wait to be taken.
constexpr size_t kReadersMax = 8;
constexpr size_t kReadyMax = 2;

struct LoadedPiece {
  uint64_t index = 0;  // in the cache
  Part part;
};

// What all pieces are loaded for.
struct Wanted {
  StateStore& store;
  const LatentLayout& layout;
  uint64_t boundary;
};

absl::StatusOr<LoadedPiece> ReadPiece(const Wanted& wanted, const PartId& id) {
  DELTAFILL_TRY_ASSIGN(part, GetStoredPart(wanted.store, id));
  const uint64_t first = part.header.first_token;
  LoadedPiece piece;
  piece.index = first / kLatentPieceTokens;
  if (first >= wanted.boundary ||
      part.header != LatentHeader(wanted.layout, piece.index * kLatentPieceTokens,
                                  std::min(kLatentPieceTokens, wanted.boundary - first))) {
    return LostPart(id,
                    absl::StrCat("is no piece of this model's latents up to ", wanted.boundary));
  }
  piece.part = std::move(part);
  return piece;
}

PartReads ReadsOf(size_t piece_count) {
  const size_t readers =
      std::min(kReadersMax, size_t{std::max(1u, std::thread::hardware_concurrency())});
  return {.count = piece_count, .ahead_max = readers + kReadyMax, .readers_max = readers};
}

// `staged`: page-locked memory to copy from, or nullptr.
absl::Status PlacePiece(const LoadedPiece& piece, kernels::Operators& operators, std::byte* staged,
                        LatentCache& cache) {
  const size_t layer_bytes = piece.part.header.LayerBytes();
  const std::byte* rows = piece.part.payload.data();
  if (staged != nullptr) {
    std::memcpy(staged, rows, piece.part.payload.size());
    rows = staged;
  }
  absl::Status status;
  for (uint32_t layer : cache.layout().layers) {
    status.Update(
        FromOperator(operators.CopyFromHost(cache.Pages(layer)[piece.index], rows, layer_bytes)));
    rows += layer_bytes;
  }
  // Also after an error: what was issued reads memory that is given back now.
  status.Update(FromOperator(operators.Synchronize()));
  return status;
}

}  // namespace

absl::Status LoadLatents(StateStore& store, std::span<const PartId> parts,
                         const LatentLayout& layout, uint64_t boundary,
                         kernels::Operators& operators, BufferPool* host_buffers,
                         LatentCache& cache) {
  const uint64_t count = (boundary + kLatentPieceTokens - 1) / kLatentPieceTokens;
  std::vector<bool> placed(count, false);
  PooledBuffer staged;
  if (host_buffers != nullptr && !parts.empty()) {
    DELTAFILL_TRY_ASSIGN(buffer, host_buffers->Acquire(PieceBytesMax(layout)));
    staged = std::move(buffer);
  }
  std::vector<LoadedPiece> read(parts.size());
  PartReaders readers(ReadsOf(parts.size()), [&](size_t i) -> absl::Status {
    DELTAFILL_TRY_ASSIGN(piece, ReadPiece({store, layout, boundary}, parts[i]));
    read[i] = std::move(piece);
    return absl::OkStatus();
  });
  for (size_t i = 0; i < parts.size(); ++i) {
    DELTAFILL_TRY(readers.Await(i));
    const LoadedPiece piece = std::move(read[i]);
    if (placed[piece.index]) {
      return absl::DataLossError(absl::StrCat("the state has two pieces of latents at token ",
                                              piece.part.header.first_token));
    }
    placed[piece.index] = true;
    DELTAFILL_TRY(PlacePiece(piece, operators, staged.get(), cache));
  }
  const auto missing = std::find(placed.begin(), placed.end(), false);
  if (missing == placed.end()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("the state has no latents from token ",
                   static_cast<uint64_t>(missing - placed.begin()) * kLatentPieceTokens, " on"));
}

}  // namespace deltafill::worker
