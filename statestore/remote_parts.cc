#include "statestore/remote_parts.h"

#include <grpcpp/support/sync_stream.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/statestore.grpc.pb.h"
#include "proto/status_conversion.h"
#include "statestore/wire_limits.h"

namespace deltafill {
namespace {

absl::Status Garbled(const std::string& what) {
  return absl::UnavailableError(absl::StrCat("the part was damaged on its way: ", what));
}

}  // namespace

absl::StatusOr<PartReceipt> SendPart(grpc::ClientWriter<v1::PutPartRequest>* writer,
                                     const v1::PutPartResponse& response, std::string_view tenant,
                                     const PartHeader& header, LayerPayloads payloads) {
  const absl::StatusOr<std::string> encoded_header = EncodePartHeader(header, payloads);
  if (!encoded_header.ok()) {
    writer->WritesDone();
    (void)writer->Finish();
    return encoded_header.status();
  }
  v1::PutPartRequest request;
  request.mutable_start()->set_tenant(std::string(tenant));
  request.mutable_start()->set_part_header(*encoded_header);
  bool alive = writer->Write(request);
  for (std::span<const std::byte> payload : payloads) {
    for (size_t sent = 0; alive && sent < payload.size(); sent += kWireChunkBytesMax) {
      const size_t bytes = std::min(kWireChunkBytesMax, payload.size() - sent);
      request.set_chunk(payload.data() + sent, bytes);
      alive = writer->Write(request);
    }
  }
  if (alive) writer->WritesDone();
  const absl::Status status = FromGrpcStatus(writer->Finish());
  if (absl::IsDataLoss(status)) return Garbled(std::string(status.message()));
  if (!status.ok()) return status;
  PartReceipt receipt;
  receipt.kind = static_cast<PartKind>(response.part().kind());
  receipt.bytes = response.part().bytes();
  receipt.lease_id = response.lease_id();
  if (!PartId::FromBytes(response.part().id(), &receipt.id)) {
    return absl::InternalError("the store sent a part id that has not 32 bytes");
  }
  return receipt;
}

absl::StatusOr<Part> ReceivePart(grpc::ClientReader<v1::GetPartResponse>* reader) {
  v1::GetPartResponse response;
  if (!reader->Read(&response)) {
    const absl::Status status = FromGrpcStatus(reader->Finish());
    return status.ok() ? absl::InternalError("the store sent no part") : status;
  }
  const absl::StatusOr<DecodedPart> decoded = DecodePartHeader(response.part_header());
  Part part;
  bool surplus = !decoded.ok();
  if (decoded.ok()) {
    part.header = decoded->header;
    part.payload.reserve(part.header.PayloadBytes());
  }
  while (reader->Read(&response)) {
    const std::span<const std::byte> chunk = std::as_bytes(std::span(response.chunk()));
    surplus = surplus || chunk.size() > part.header.PayloadBytes() - part.payload.size();
    if (surplus) continue;  // reads on to the end, and keeps nothing
    part.payload.insert(part.payload.end(), chunk.begin(), chunk.end());
  }
  const absl::Status status = FromGrpcStatus(reader->Finish());
  if (!status.ok()) return status;
  if (!decoded.ok()) return Garbled(std::string(decoded.status().message()));
  const uint64_t layer_bytes = part.header.LayerBytes();
  if (surplus || part.payload.size() != part.header.PayloadBytes())
    return Garbled("its size does not match");
  for (size_t i = 0; i < part.header.layers.size(); ++i) {
    const std::span<const std::byte> payload(part.payload.data() + i * layer_bytes, layer_bytes);
    if (absl::Status verified = VerifyPartLayer(*decoded, i, payload); !verified.ok()) {
      return Garbled(std::string(verified.message()));
    }
  }
  return part;
}

absl::StatusOr<std::vector<PartReceipt>> ReadLeasedParts(const v1::LeasePartsResponse& response,
                                                         std::span<const PartId> asked) {
  std::vector<PartReceipt> receipts;
  const size_t count = static_cast<size_t>(response.parts_size());
  bool fits = count == asked.size() && count == static_cast<size_t>(response.lease_ids_size());
  for (size_t i = 0; fits && i < count; ++i) {
    const v1::StoredPartRef& part = response.parts(static_cast<int>(i));
    fits = part.id() == asked[i].view();
    receipts.push_back({asked[i], static_cast<PartKind>(part.kind()), part.bytes(),
                        response.lease_ids(static_cast<int>(i))});
  }
  if (fits) return receipts;
  return absl::InternalError("the store leased other parts than it was asked for");
}

}  // namespace deltafill
