#include "coordinator/front/state_tensors.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/front/state_access.h"

namespace deltafill::coordinator {
namespace {

absl::Status NoSuchLayer(std::span<const uint32_t> wanted, const std::vector<uint32_t>& present) {
  for (uint32_t layer : wanted) {
    if (std::binary_search(present.begin(), present.end(), layer)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("layers: ", layer, " is not in the state, which has ", present.size(),
                     " layers from ", present.front(), " to ", present.back()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Part> ReadPart(StateStore& store, const PartRef& ref,
                              std::span<const uint32_t> layers) {
  absl::StatusOr<Part> part = store.GetPart(ref.id, layers);
  if (!absl::IsNotFound(part.status())) return part;
  // Is it the part that is missing, or a layer of it?
  absl::StatusOr<Part> whole = store.GetPart(ref.id, {});
  if (whole.ok()) {
    if (absl::Status status = NoSuchLayer(layers, whole->header.layers); !status.ok())
      return status;
    return part;
  }
  return absl::IsNotFound(whole.status()) ? StateNotFound("state") : whole.status();
}

absl::StatusOr<Part> ZeroPart(const PartHeader& shape, std::span<const uint32_t> layers) {
  Part part;
  part.header = shape;
  if (!layers.empty()) {
    if (absl::Status status = NoSuchLayer(layers, shape.layers); !status.ok()) return status;
    part.header.layers.assign(layers.begin(), layers.end());
  }
  part.payload.resize(part.header.PayloadBytes());
  return part;
}

}  // namespace

std::span<const std::byte> StateTensors::Layer(const Part& part, size_t position) {
  const uint64_t bytes = part.header.LayerBytes();
  return std::span(part.payload).subspan(position * bytes, bytes);
}

absl::StatusOr<StateTensors> ReadStateTensors(StateStore& store, std::span<const PartRef> parts,
                                              std::span<const uint32_t> layers) {
  StateTensors tensors;
  bool recurrent = false, conv = false;
  for (const PartRef& ref : parts) {
    if (ref.kind == PartKind::kLatent) continue;
    const bool logits = ref.kind == PartKind::kLogits;
    absl::StatusOr<Part> part = ReadPart(store, ref, logits ? std::span<const uint32_t>() : layers);
    if (!part.ok()) return part.status();
    if (part->payload.size() != part->header.PayloadBytes()) {
      return absl::InternalError("a part's payload does not have the size that its header says");
    }
    if (logits) {
      tensors.logits = *std::move(part);
    } else if (ref.kind == PartKind::kRecurrent) {
      tensors.recurrent = *std::move(part);
      recurrent = true;
    } else {
      tensors.conv = *std::move(part);
      conv = true;
    }
  }
  if (recurrent && conv) return tensors;
  return absl::InternalError("the state lacks its recurrent or its convolution part");
}

absl::StatusOr<StateTensors> ZeroStateTensors(const ServedModel& model,
                                              std::span<const uint32_t> layers) {
  StateTensors tensors;
  bool recurrent = false, conv = false;
  for (const PartHeader& shape : model.state_parts) {
    absl::StatusOr<Part> part = ZeroPart(shape, layers);
    if (!part.ok()) return part.status();
    if (shape.kind == PartKind::kRecurrent) {
      tensors.recurrent = *std::move(part);
      recurrent = true;
    } else if (shape.kind == PartKind::kConvTail) {
      tensors.conv = *std::move(part);
      conv = true;
    }
  }
  if (recurrent && conv) return tensors;
  return absl::FailedPreconditionError(absl::StrCat("state: the workers of model ", model.name,
                                                    " do not tell what its zero state looks like"));
}

}  // namespace deltafill::coordinator
