#include "coordinator/front/state_latents.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/latent_parts.h"

namespace deltafill::coordinator {
namespace {

absl::Status Damaged(const std::string& why) {
  return absl::DataLossError(absl::StrCat("state: damaged: ", why));
}

absl::StatusOr<Part> ReadPiece(StateStore& store, const PartRef& piece,
                               std::span<const uint32_t> layers) {
  absl::StatusOr<Part> part = store.GetPart(piece.id, layers);
  if (!absl::IsNotFound(part.status())) return part;
  return Damaged(absl::StrCat("part ", piece.id.ToHex(), " is missing"));
}

}  // namespace

absl::StatusOr<StateLatents> FindLatents(StateStore& store, std::span<const PartRef> parts,
                                         uint64_t tokens) {
  StateLatents latents;
  latents.tokens = tokens;
  latents.pieces = LatentsOf(parts);
  if (latents.pieces.empty()) return latents;
  const uint64_t expected = PieceCount(tokens);
  if (latents.pieces.size() != expected) {
    return Damaged(absl::StrCat(latents.pieces.size(), " pieces of latents for ", tokens,
                                " tokens, not ", expected));
  }
  const absl::StatusOr<Part> last = ReadPiece(store, latents.pieces.back(), {});  // the shortest
  if (!last.ok()) return last.status();
  latents.shape.layers = last->header.layers;
  latents.shape.width = last->header.shape[1];
  latents.shape.dtype = last->header.dtype;
  return latents;
}

bool SplitLayers(StateLatents* latents, std::vector<uint32_t>* wanted) {
  if (wanted->empty()) return true;
  std::vector<uint32_t> chosen;
  std::erase_if(*wanted, [&](uint32_t layer) {
    const std::vector<uint32_t>& there = latents->shape.layers;
    if (!std::binary_search(there.begin(), there.end(), layer)) return false;
    chosen.push_back(layer);
    return true;
  });
  latents->shape.layers = std::move(chosen);
  return !wanted->empty();
}

TensorShape LatentTensor(const StateLatents& latents, uint32_t layer) {
  return {absl::StrCat("layers.", layer, ".latent"),
          latents.shape.dtype,
          {latents.tokens, latents.shape.width}};
}

absl::Status ReadLatents(StateStore& store, const StateLatents& latents, uint32_t layer,
                         const std::function<absl::Status(std::string_view bytes)>& send) {
  for (size_t i = 0; i < latents.pieces.size(); ++i) {
    const absl::StatusOr<Part> part = ReadPiece(store, latents.pieces[i], {&layer, 1});
    if (!part.ok()) return part.status();
    const uint64_t first = i * kLatentPieceTokens;
    const uint64_t count = std::min(kLatentPieceTokens, latents.tokens - first);
    const PartHeader& header = part->header;
    if (header.first_token != first || header.token_count != count ||
        header.dtype != latents.shape.dtype ||
        header.shape !=
            std::array<uint32_t, 4>{static_cast<uint32_t>(count), latents.shape.width, 1, 1}) {
      return Damaged(absl::StrCat("a piece of latents does not begin at token ", first));
    }
    const absl::Status sent =
        send({reinterpret_cast<const char*>(part->payload.data()), part->payload.size()});
    if (!sent.ok()) return sent;
  }
  return absl::OkStatus();
}

}  // namespace deltafill::coordinator
