// FetchState: the tensors of a state, at its block or at the exact end.
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
#include "coordinator/front/state_tensors.h"
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

absl::Status SendTensors(const StateTensors& tensors, const v1::FetchStateRequest& request,
                         const Manifest& manifest, size_t tail_tokens, const Call& call,
                         const Send& send) {
  absl::StatusOr<Selection> selection = Select(request, tensors);
  if (!selection.ok()) return selection.status();
  const std::vector<uint32_t>& layers = tensors.recurrent.header.layers;

  v1::FetchStateEvent first, last;
  v1::FetchStateStart* start = first.mutable_start();
  v1::FetchStateEnd* end = last.mutable_end();
  DescribeState(manifest, tail_tokens, start->mutable_state());
  const bool at_end = request.position() == v1::STATE_POSITION_END;
  AddMetadata(*selection, manifest, manifest.boundary + (at_end ? tail_tokens : 0), start);
  for (uint32_t layer : layers) {
    for (const TensorShape& shape :
         LayerShapes(selection->layout, layer, selection->dims, selection->heads)) {
      Announce(shape, start);
    }
  }
  if (tensors.logits.has_value()) {
    Announce({"logits", PartDType::kF32, {tensors.logits->payload.size() / sizeof(float)}}, start);
  }
  end->set_tensors(static_cast<uint64_t>(start->tensors_size()));
  if (!send(first)) return CallerGone();
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string bytes =
        LayerBytes(selection->layout, selection->dims, selection->heads,
                   StateTensors::Layer(tensors.recurrent, i), StateTensors::Layer(tensors.conv, i));
    if (absl::Status status = SendBytes(bytes, call, send, end); !status.ok()) return status;
  }
  if (tensors.logits.has_value()) {
    const std::vector<std::byte>& logits = tensors.logits->payload;
    absl::Status status =
        SendBytes({reinterpret_cast<const char*>(logits.data()), logits.size()}, call, send, end);
    if (!status.ok()) return status;
  }
  return send(last) ? absl::OkStatus() : CallerGone();
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
  std::vector<PartRef> parts;
  for (const PartReceipt& part : *receipts) parts.push_back({part.id, part.kind, part.bytes});
  absl::StatusOr<StateTensors> tensors = ReadStateTensors(
      context.store, parts, {request.layers().data(), static_cast<size_t>(request.layers_size())});
  if (!tensors.ok()) return tensors.status();
  if (!tensors->logits.has_value()) return absl::InternalError("the worker exported no logits");
  return SendTensors(*tensors, request, manifest, ref.tail.size(), call, send);
}

absl::Status FetchBlock(FrontContext& context, const Call& call,
                        const v1::FetchStateRequest& request, const Manifest& manifest,
                        const PrefixRef& ref, const Send& send) {
  const std::span<const uint32_t> layers(request.layers().data(),
                                         static_cast<size_t>(request.layers_size()));
  absl::StatusOr<StateTensors> tensors;
  if (manifest.boundary == 0) {
    absl::StatusOr<ServedModel> model =
        ModelOfState(context.engine.Models(), manifest.fingerprint, manifest.numerics, "");
    if (!model.ok()) return model.status();
    tensors = ZeroStateTensors(*model, layers);
  } else {
    tensors = ReadStateTensors(context.store, manifest.parts, layers);
  }
  if (!tensors.ok()) return tensors.status();
  return SendTensors(*tensors, request, manifest, ref.tail.size(), call, send);
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
