#include "coordinator/latent_parts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace deltafill::coordinator {
namespace {

uint64_t PieceBytes(const LatentShape& shape, uint64_t tokens) {
  PartHeader header;
  header.kind = PartKind::kLatent;
  header.dtype = shape.dtype;
  header.layers = shape.layers;
  header.shape = {static_cast<uint32_t>(tokens), shape.width, 1, 1};
  return header.HeaderBytes() + header.PayloadBytes();
}

}  // namespace

std::vector<PartRef> LatentsOf(std::span<const PartRef> parts) {
  std::vector<PartRef> latents;
  for (const PartRef& part : parts) {
    if (part.kind == PartKind::kLatent) latents.push_back(part);
  }
  return latents;
}

std::vector<PartRef> WholePieces(std::span<const PartRef> parts, uint64_t boundary) {
  std::vector<PartRef> latents = LatentsOf(parts);
  latents.resize(std::min<uint64_t>(latents.size(), boundary / kLatentPieceTokens));
  return latents;
}

std::vector<PartReceipt> AsReceipts(std::span<const PartRef> parts) {
  std::vector<PartReceipt> receipts;
  for (const PartRef& part : parts) receipts.push_back({part.id, part.kind, part.bytes, 0});
  return receipts;
}

std::vector<PartReceipt> WithPieces(std::span<const PartReceipt> own,
                                    std::span<const PartReceipt> pieces) {
  std::vector<PartReceipt> all(own.begin(), own.end());
  const auto place = std::find_if(all.begin(), all.end(), [](const PartReceipt& part) {
    return part.kind != PartKind::kRecurrent && part.kind != PartKind::kConvTail;
  });
  all.insert(place, pieces.begin(), pieces.end());
  return all;
}

std::vector<PartRef> AsRefs(std::span<const PartReceipt> parts) {
  std::vector<PartRef> refs;
  for (const PartReceipt& part : parts) refs.push_back({part.id, part.kind, part.bytes});
  return refs;
}

std::vector<uint64_t> LeaseIds(std::span<const PartReceipt> parts) {
  std::vector<uint64_t> leases;
  leases.reserve(parts.size());
  for (const PartReceipt& part : parts) {
    if (part.lease_id != 0) leases.push_back(part.lease_id);
  }
  return leases;
}

std::vector<PartId> LatentIds(std::span<const PartRef> parts) {
  std::vector<PartId> ids;
  for (const PartRef& part : parts) {
    if (part.kind == PartKind::kLatent) ids.push_back(part.id);
  }
  return ids;
}

std::vector<PartId> IdsWithoutLatents(std::span<const PartRef> parts) {
  std::vector<PartId> ids;
  for (const PartRef& part : parts) {
    if (part.kind != PartKind::kLatent) ids.push_back(part.id);
  }
  return ids;
}

std::string WhyIncomplete(const ServedModel& model, uint64_t boundary,
                          std::span<const PartRef> parts) {
  for (const PartHeader& wanted : model.state_parts) {
    const auto count = std::count_if(parts.begin(), parts.end(),
                                     [&](const PartRef& part) { return part.kind == wanted.kind; });
    if (count != 1) {
      return absl::StrCat("it names ", count, " parts of kind ", static_cast<int>(wanted.kind));
    }
  }
  const std::vector<PartRef> latents = LatentsOf(parts);
  if (!model.state_parts.empty() && model.state_parts.size() + latents.size() != parts.size()) {
    return "it names parts of a kind that the model has not";
  }
  const uint64_t pieces = model.latents.layers.empty() ? 0 : PieceCount(boundary);
  if (latents.size() != pieces) {
    return absl::StrCat("it names ", latents.size(), " pieces of latents, not ", pieces);
  }
  for (uint64_t i = 0; i < pieces; ++i) {
    const uint64_t tokens = std::min(kLatentPieceTokens, boundary - i * kLatentPieceTokens);
    if (latents[i].bytes == PieceBytes(model.latents, tokens)) continue;
    return absl::StrCat("its latents from token ", i * kLatentPieceTokens, " are not ", tokens,
                        " tokens");
  }
  return "";
}

}  // namespace deltafill::coordinator
