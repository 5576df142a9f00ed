#include "worker/runtime/state_parts.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/part_access.h"

namespace deltafill::worker {
namespace {

// Where a part's layers stand in a state, in the order of header.layers.
std::vector<std::span<const std::byte>> LayersOf(const StateLayout& layout, PartKind kind,
                                                 const std::byte* state) {
  std::vector<std::span<const std::byte>> layers;
  for (const StateEntry& entry : layout.entries) {
    if (entry.kind == kind) layers.emplace_back(state + entry.offset, entry.bytes);
  }
  return layers;
}

absl::Status PlacePart(const Part& part, const PartId& id, const StateLayout& layout,
                       std::byte* state) {
  size_t offset = 0;
  for (const StateEntry& entry : layout.entries) {
    if (entry.kind != part.header.kind) continue;
    if (entry.bytes > part.payload.size() - offset) return LostPart(id, "payload too short");
    std::memcpy(state + entry.offset, part.payload.data() + offset, entry.bytes);
    offset += entry.bytes;
  }
  if (offset != part.payload.size()) return LostPart(id, "payload too long");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<PartHeader>> PartHeaders(const StateLayout& layout, uint64_t boundary) {
  std::vector<PartHeader> headers;
  for (const StateEntry& entry : layout.entries) {
    if (headers.empty() || headers.back().kind != entry.kind) {
      for (const PartHeader& header : headers) {
        if (header.kind == entry.kind) {
          return absl::InvalidArgumentError(
              "state layout: entries of one kind do not stand together");
        }
      }
      PartHeader header;
      header.kind = entry.kind;
      header.dtype = entry.dtype;
      header.shape = entry.shape;
      header.first_token = boundary;
      headers.push_back(std::move(header));
    }
    PartHeader& header = headers.back();
    if (header.shape != entry.shape || header.dtype != entry.dtype ||
        entry.bytes != header.LayerBytes()) {
      return absl::InvalidArgumentError(
          absl::StrCat("state layout: layer ", entry.layer, " differs from others of its kind"));
    }
    if (!header.layers.empty() && header.layers.back() >= entry.layer) {
      return absl::InvalidArgumentError("state layout: layers do not ascend");
    }
    header.layers.push_back(entry.layer);
  }
  return headers;
}

absl::StatusOr<std::vector<PartReceipt>> PutPrefixState(StateStore& store,
                                                        const std::string& tenant,
                                                        const StateLayout& layout,
                                                        uint64_t boundary, const std::byte* state) {
  DELTAFILL_TRY_ASSIGN(headers, PartHeaders(layout, boundary));
  std::vector<PartReceipt> receipts;
  for (const PartHeader& header : headers) {
    DELTAFILL_TRY_ASSIGN(
        receipt, PutPartWithRetry(store, tenant, header, LayersOf(layout, header.kind, state)));
    receipts.push_back(receipt);
  }
  return receipts;
}

absl::StatusOr<PartReceipt> PutLogits(StateStore& store, const std::string& tenant,
                                      uint64_t boundary, std::span<const float> logits) {
  PartHeader header;
  header.kind = PartKind::kLogits;
  header.layers = {0};
  header.shape = {static_cast<uint32_t>(logits.size()), 1, 1, 1};
  header.first_token = boundary;
  const std::span<const std::byte> payload = std::as_bytes(logits);
  return PutPartWithRetry(store, tenant, header, {&payload, 1});
}

absl::Status LoadPrefixState(StateStore& store, std::span<const PartId> parts,
                             const StateLayout& layout, uint64_t boundary, std::byte* state) {
  DELTAFILL_TRY_ASSIGN(headers, PartHeaders(layout, boundary));
  std::vector<bool> placed(headers.size(), false);
  for (const PartId& id : parts) {
    DELTAFILL_TRY_ASSIGN(part, GetStoredPart(store, id));
    size_t position = 0;
    while (position < headers.size() && !(headers[position] == part.header)) ++position;
    if (position == headers.size()) {
      return LostPart(id, absl::StrCat("its header is not this model's at boundary ", boundary));
    }
    if (placed[position]) return LostPart(id, "a second part of its kind");
    DELTAFILL_TRY(PlacePart(part, id, layout, state));
    placed[position] = true;
  }
  for (size_t i = 0; i < headers.size(); ++i) {
    if (!placed[i]) {
      return absl::DataLossError(
          absl::StrCat("the state has no part of kind ", static_cast<int>(headers[i].kind)));
    }
  }
  return absl::OkStatus();
}

}  // namespace deltafill::worker
