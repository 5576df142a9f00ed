#include "statestore/service_parts.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/statestore.pb.h"
#include "statestore/manifest_message.h"
#include "statestore/wire_limits.h"

namespace deltafill {
namespace {

constexpr uint64_t kPayloadBytesInFlightMax = uint64_t{512} << 20;
constexpr std::chrono::seconds kGateWait{30};

std::vector<std::span<const std::byte>> SplitLayers(const PartHeader& header,
                                                    std::span<const std::byte> payload) {
  const uint64_t layer_bytes = header.LayerBytes();
  std::vector<std::span<const std::byte>> layers(header.layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i] = payload.subspan(i * layer_bytes, layer_bytes);
  }
  return layers;
}

PartRef RefOf(const PartReceipt& receipt) { return {receipt.id, receipt.kind, receipt.bytes}; }

}  // namespace

PartCalls::PartCalls(StateStore* store)
    : store_(store), payloads_in_flight_(kPayloadBytesInFlightMax) {}

absl::Status PartCalls::Put(grpc::ServerReader<v1::PutPartRequest>* reader,
                            v1::PutPartResponse* response) {
  v1::PutPartRequest request;
  if (!reader->Read(&request) || !request.has_start()) {
    return absl::InvalidArgumentError("the first message must be start");
  }
  const absl::StatusOr<DecodedPart> part = DecodePartHeader(request.start().part_header());
  if (!part.ok()) return absl::InvalidArgumentError(std::string(part.status().message()));
  if (part->payload_offset != request.start().part_header().size()) {
    return absl::InvalidArgumentError("part_header: has bytes after the header");
  }
  const uint64_t bytes = part->header.PayloadBytes();
  if (!payloads_in_flight_.Enter(bytes, kGateWait)) {
    return absl::UnavailableError("the store is receiving as many parts as it may");
  }
  const absl::Status status = PutInside(request.start().tenant(), *part, reader, response);
  payloads_in_flight_.Leave(bytes);
  return status;
}

absl::Status PartCalls::PutInside(const std::string& tenant, const DecodedPart& part,
                                  grpc::ServerReader<v1::PutPartRequest>* reader,
                                  v1::PutPartResponse* response) {
  const uint64_t payload_bytes = part.header.PayloadBytes();
  std::vector<std::byte> payload;
  payload.reserve(payload_bytes);
  v1::PutPartRequest request;
  while (reader->Read(&request)) {
    if (!request.has_chunk()) return absl::InvalidArgumentError("start: sent twice");
    const std::string& chunk = request.chunk();
    if (chunk.size() > kWireChunkBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("chunk: ", chunk.size(), " bytes, limit ", kWireChunkBytesMax));
    }
    if (chunk.size() > payload_bytes - payload.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("chunks: more than the ", payload_bytes, " bytes that the header says"));
    }
    const std::span<const std::byte> raw = std::as_bytes(std::span(chunk));
    payload.insert(payload.end(), raw.begin(), raw.end());
  }
  if (payload.size() != payload_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("chunks: ", payload.size(), " bytes of the ",
                                                   payload_bytes, " that the header says"));
  }
  const std::vector<std::span<const std::byte>> layers = SplitLayers(part.header, payload);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (absl::Status status = VerifyPartLayer(part, i, layers[i]); !status.ok()) return status;
  }
  const absl::StatusOr<PartReceipt> receipt = store_->PutPart(tenant, part.header, layers);
  if (!receipt.ok()) return receipt.status();
  ToMessage(RefOf(*receipt), response->mutable_part());
  response->set_lease_id(receipt->lease_id);
  return absl::OkStatus();
}

absl::Status PartCalls::Lease(const v1::LeasePartsRequest& request,
                              v1::LeasePartsResponse* response) {
  std::vector<PartId> ids(static_cast<size_t>(request.part_ids_size()));
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string& raw = request.part_ids(static_cast<int>(i));
    if (!PartId::FromBytes(raw, &ids[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("part_ids: ", raw.size(), " bytes, must be 32"));
    }
  }
  const absl::StatusOr<std::vector<PartReceipt>> leased = store_->LeaseParts(ids);
  if (!leased.ok()) return leased.status();
  for (const PartReceipt& receipt : *leased) {
    ToMessage(RefOf(receipt), response->add_parts());
    response->add_lease_ids(receipt.lease_id);
  }
  return absl::OkStatus();
}

absl::Status PartCalls::Get(const v1::GetPartRequest& request,
                            grpc::ServerWriter<v1::GetPartResponse>* writer) {
  PartId id;
  if (!PartId::FromBytes(request.part_id(), &id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("part_id: ", request.part_id().size(), " bytes, must be 32"));
  }
  const absl::StatusOr<Part> part =
      store_->GetPart(id, {request.layers().data(), static_cast<size_t>(request.layers_size())});
  if (!part.ok()) return part.status();
  const absl::StatusOr<std::string> header =
      EncodePartHeader(part->header, SplitLayers(part->header, part->payload));
  if (!header.ok()) return header.status();
  v1::GetPartResponse response;
  response.set_part_header(*header);
  bool alive = writer->Write(response);
  const std::span<const std::byte> payload(part->payload);
  for (size_t sent = 0; alive && sent < payload.size(); sent += kWireChunkBytesMax) {
    const size_t bytes = std::min(kWireChunkBytesMax, payload.size() - sent);
    response.set_chunk(payload.data() + sent, bytes);
    alive = writer->Write(response);
  }
  return alive ? absl::OkStatus() : absl::CancelledError("the reader went away");
}

}  // namespace deltafill
