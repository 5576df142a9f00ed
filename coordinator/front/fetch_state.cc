// FetchState: the tensors of a state, at its block or at the exact end.
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/front/describe.h"
#include "coordinator/front/layout.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/model_choice.h"
#include "coordinator/front/operations.h"
#include "coordinator/front/part_leases.h"
#include "coordinator/front/prompt_session.h"
#include "coordinator/front/request_check.h"
#include "coordinator/front/state_access.h"
#include "coordinator/front/state_latents.h"
#include "coordinator/front/state_tensors.h"
#include "coordinator/latent_parts.h"
#include "proto/prefill.pb.h"

namespace deltafill::coordinator {
namespace {

using Send = SendEvent<v1::FetchStateEvent>;

absl::Status CallerGone() { return absl::CancelledError("the caller is gone"); }

// Sends bytes in chunks.
absl::Status SendBytes(std::string_view bytes, const Call& call, const Send& send,
                       v1::FetchStateEnd* end) {
  v1::FetchStateEvent event;
  for (size_t at = 0; at < bytes.size(); at += kChunkBytesMax) {
    if (call.cancelled()) return CallerGone();
    const std::string_view chunk = bytes.substr(at, kChunkBytesMax);
    event.set_chunk(chunk.data(), chunk.size());
    if (!send(event)) return CallerGone();
  }
  end->set_bytes(end->bytes() + bytes.size());
  return absl::OkStatus();
}

void Announce(const TensorShape& shape, v1::FetchStateStart* start) {
  v1::TensorHeader* header = start->add_tensors();
  header->set_name(shape.name);
  header->set_dtype(DTypeName(shape.dtype));
  for (uint64_t extent : shape.shape) header->add_shape(extent);
  header->set_bytes(shape.ByteCount());
}

// What is sent, and in which form.
struct Selection {
  TensorLayout layout = TensorLayout::kCanonical;
  StateDims dims;
  HeadRange heads;
};

absl::StatusOr<Selection> Select(const v1::FetchStateRequest& request,
                                 const StateTensors& tensors) {
  absl::StatusOr<TensorLayout> layout = ParseTensorLayout(request.layout());
  if (!layout.ok()) return layout.status();
  absl::StatusOr<StateDims> dims = DeriveStateDims(tensors.recurrent.header, tensors.conv.header);
  if (!dims.ok()) return dims.status();
  absl::StatusOr<HeadRange> heads = CheckHeadRange(request.head_begin(), request.head_end(), *dims);
  if (!heads.ok()) return heads.status();
  if (tensors.logits.has_value() && tensors.logits->header.dtype != PartDType::kF32) {
    return absl::InternalError("the exported logits are not fp32");
  }
  return Selection{*layout, *dims, *heads};
}

// Only what the tensors are a function of: two files of the same state are the same bytes.
void AddMetadata(const Selection& selection, const Manifest& manifest, uint64_t tokens,
                 v1::FetchStateStart* start) {
  auto& metadata = *start->mutable_metadata();
  metadata["layout"] = selection.layout == TensorLayout::kFla ? "fla" : "canonical";
  metadata["boundary"] = absl::StrCat(manifest.boundary);
  metadata["tokens"] = absl::StrCat(tokens);
  metadata["model_fingerprint"] = manifest.fingerprint.ToHex();
  metadata["numerics"] = manifest.numerics;
  metadata["heads"] = absl::StrCat(selection.dims.heads);
  metadata["head_begin"] = absl::StrCat(selection.heads.begin);
  metadata["head_end"] = absl::StrCat(selection.heads.end);
}

// The tensors of one state: what is in memory, and what is streamed.
struct StateContents {
  StateTensors tensors;
  bool send_recurrent = true;
  StateLatents latents;

  std::vector<uint32_t> RecurrentLayers() const {
    return send_recurrent ? tensors.recurrent.header.layers : std::vector<uint32_t>();
  }
};

absl::Status CheckLayout(const Selection& selection, const StateLatents& latents) {
  if (selection.layout != TensorLayout::kFla || latents.shape.layers.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "layout: \"fla\" has no cache of latents, and layer ", latents.shape.layers.front(),
      " is latent attention; name the other layers, or ask for \"canonical\""));
}

// Layers ascend, whatever their kinds are.
absl::Status SendLayers(FrontContext& context, const StateContents& contents,
                        const Selection& selection, const Call& call, const Send& send,
                        v1::FetchStateEnd* end) {
  const std::vector<uint32_t> recurrent = contents.RecurrentLayers();
  const std::vector<uint32_t>& attention = contents.latents.shape.layers;
  size_t r = 0, a = 0;
  while (r < recurrent.size() || a < attention.size()) {
    absl::Status status;
    if (a == attention.size() || (r < recurrent.size() && recurrent[r] < attention[a])) {
      status = SendBytes(LayerBytes(selection.layout, selection.dims, selection.heads,
                                    StateTensors::Layer(contents.tensors.recurrent, r),
                                    StateTensors::Layer(contents.tensors.conv, r)),
                         call, send, end);
      ++r;
    } else {
      status =
          ReadLatents(context.store, contents.latents, attention[a],
                      [&](std::string_view bytes) { return SendBytes(bytes, call, send, end); });
      ++a;
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void AnnounceLayers(const StateContents& contents, const Selection& selection,
                    v1::FetchStateStart* start) {
  std::map<uint32_t, std::vector<TensorShape>> layers;
  for (uint32_t layer : contents.RecurrentLayers()) {
    layers[layer] = LayerShapes(selection.layout, layer, selection.dims, selection.heads);
  }
  for (uint32_t layer : contents.latents.shape.layers) {
    layers[layer] = {LatentTensor(contents.latents, layer)};
  }
  for (const auto& [layer, shapes] : layers) {
    for (const TensorShape& shape : shapes) Announce(shape, start);
  }
}

absl::Status SendContents(FrontContext& context, const StateContents& contents,
                          const v1::FetchStateRequest& request, const Manifest& manifest,
                          size_t tail_tokens, const Call& call, const Send& send) {
  const StateTensors& tensors = contents.tensors;
  absl::StatusOr<Selection> selection = Select(request, tensors);
  if (!selection.ok()) return selection.status();
  if (absl::Status status = CheckLayout(*selection, contents.latents); !status.ok()) return status;

  v1::FetchStateEvent first, last;
  v1::FetchStateStart* start = first.mutable_start();
  v1::FetchStateEnd* end = last.mutable_end();
  DescribeState(manifest, tail_tokens, start->mutable_state());
  const bool at_end = request.position() == v1::STATE_POSITION_END;
  AddMetadata(*selection, manifest, manifest.boundary + (at_end ? tail_tokens : 0), start);
  AnnounceLayers(contents, *selection, start);
  if (tensors.logits.has_value()) {
    Announce({"logits", PartDType::kF32, {tensors.logits->payload.size() / sizeof(float)}}, start);
  }
  end->set_tensors(static_cast<uint64_t>(start->tensors_size()));
  if (!send(first)) return CallerGone();
  absl::Status status = SendLayers(context, contents, *selection, call, send, end);
  if (status.ok() && tensors.logits.has_value()) {
    const std::vector<std::byte>& logits = tensors.logits->payload;
    status =
        SendBytes({reinterpret_cast<const char*>(logits.data()), logits.size()}, call, send, end);
  }
  if (!status.ok()) return status;
  return send(last) ? absl::OkStatus() : CallerGone();
}

// What of the parts is asked for.
absl::StatusOr<StateContents> ReadContents(FrontContext& context,
                                           const v1::FetchStateRequest& request,
                                           std::span<const PartRef> parts, uint64_t tokens) {
  StateContents contents;
  absl::StatusOr<StateLatents> latents = FindLatents(context.store, parts, tokens);
  if (!latents.ok()) return latents.status();
  contents.latents = *std::move(latents);
  std::vector<uint32_t> layers(request.layers().begin(), request.layers().end());
  contents.send_recurrent = SplitLayers(&contents.latents, &layers);
  absl::StatusOr<StateTensors> tensors = ReadStateTensors(context.store, parts, layers);
  if (!tensors.ok()) return tensors.status();
  contents.tensors = *std::move(tensors);
  return contents;
}

// Lets a worker run the tail; the parts come back under leases.
absl::StatusOr<std::vector<PartReceipt>> ExportEnd(FrontContext& context, const Call& call,
                                                   const ServedModel& model,
                                                   const Manifest& manifest, const PrefixRef& ref) {
  ExportWork work;
  work.fingerprint = model.fingerprint;
  work.numerics = model.numerics;
  work.tenant = call.tenant;
  work.start.boundary = manifest.boundary;
  work.start.parts = manifest.parts;
  work.tokens = ref.tail;
  auto session = std::make_shared<PromptSession>();
  absl::StatusOr<PromptNumber> number = context.engine.SubmitExport(std::move(work), session);
  if (!number.ok()) return number.status();
  std::vector<PartReceipt> parts;
  absl::Status status = DrainPrompt(context.engine, context.store, *number, *session,
                                    call.cancelled, [&parts](PromptEvent& event) {
                                      if (auto* exported = std::get_if<ExportedEvent>(&event)) {
                                        parts = std::move(exported->parts);
                                      }
                                      return absl::OkStatus();
                                    });
  if (status.ok() && parts.empty()) status = absl::InternalError("the worker exported no parts");
  if (status.ok()) return parts;
  ReleaseParts(context.store, parts);
  return status;
}

absl::Status FetchEnd(FrontContext& context, const Call& call, const v1::FetchStateRequest& request,
                      const Manifest& manifest, const PrefixRef& ref, const Send& send) {
  if (ref.tail.empty()) {
    return absl::InvalidArgumentError(
        "state: has no tail, so there is no last token to take logits of; position must be BLOCK");
  }
  absl::StatusOr<ServedModel> model =
      ModelOfState(context.engine.Models(), manifest.fingerprint, manifest.numerics, "");
  if (!model.ok()) return model.status();
  if (absl::Status status = CheckTail(ref, *model); !status.ok()) return status;
  absl::StatusOr<std::vector<PartReceipt>> receipts =
      ExportEnd(context, call, *model, manifest, ref);
  if (!receipts.ok()) return receipts.status();
  const LeasedParts leased(context.store, *receipts);
  const std::vector<PartRef> parts = AsRefs(*receipts);
  absl::StatusOr<StateContents> contents =
      ReadContents(context, request, parts, manifest.boundary + ref.tail.size());
  if (!contents.ok()) return contents.status();
  if (!contents->tensors.logits.has_value()) {
    return absl::InternalError("the worker exported no logits");
  }
  return SendContents(context, *contents, request, manifest, ref.tail.size(), call, send);
}

// A state that lacks a part of its model's is damaged; of a model that nobody serves, what is read
// tells.
absl::Status CheckComplete(FrontContext& context, const Manifest& manifest) {
  for (const ServedModel& model : context.engine.Models()) {
    if (model.fingerprint != manifest.fingerprint || model.numerics != manifest.numerics) continue;
    const std::string why = WhyIncomplete(model, manifest.boundary, manifest.parts);
    if (!why.empty()) return absl::DataLossError(absl::StrCat("state: damaged: ", why));
  }
  return absl::OkStatus();
}

absl::Status FetchBlock(FrontContext& context, const Call& call,
                        const v1::FetchStateRequest& request, const Manifest& manifest,
                        const PrefixRef& ref, const Send& send) {
  StateContents contents;
  if (manifest.boundary == 0) {
    absl::StatusOr<ServedModel> model =
        ModelOfState(context.engine.Models(), manifest.fingerprint, manifest.numerics, "");
    if (!model.ok()) return model.status();
    absl::StatusOr<StateTensors> tensors = ZeroStateTensors(
        *model, {request.layers().data(), static_cast<size_t>(request.layers_size())});
    if (!tensors.ok()) return tensors.status();
    contents.tensors = *std::move(tensors);  // no token has latents yet
  } else {
    if (absl::Status status = CheckComplete(context, manifest); !status.ok()) return status;
    absl::StatusOr<StateContents> read =
        ReadContents(context, request, manifest.parts, manifest.boundary);
    if (!read.ok()) return read.status();
    contents = *std::move(read);
  }
  return SendContents(context, contents, request, manifest, ref.tail.size(), call, send);
}

}  // namespace

absl::Status FetchState(FrontContext& context, const Call& call,
                        const v1::FetchStateRequest& request, const Send& send) {
  if (absl::Status status = CheckFetchStateRequest(request); !status.ok()) return status;
  if (auto layout = ParseTensorLayout(request.layout()); !layout.ok()) return layout.status();
  absl::StatusOr<PrefixRef> ref = DecodeStateReference(request.state(), "state");
  if (!ref.ok()) return ref.status();
  absl::StatusOr<TenantSalt> salt = context.salts.Get(call.tenant);
  if (!salt.ok()) return salt.status();
  absl::StatusOr<Manifest> manifest =
      FindState(context.store, call.tenant, *salt, *ref, context.engine.Models(), "state");
  if (!manifest.ok()) return manifest.status();
  if (request.position() == v1::STATE_POSITION_END) {
    return FetchEnd(context, call, request, *manifest, *ref, send);
  }
  return FetchBlock(context, call, request, *manifest, *ref, send);
}

}  // namespace deltafill::coordinator
