#include "worker/exchange/wire_messages.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/worker.pb.h"

namespace deltafill::worker {
namespace {

template <typename Wire>
void SetAddress(const BoundaryAddress& address, Wire* out) {
  out->mutable_attempt()->set_prompt(address.attempt.prompt);
  out->mutable_attempt()->set_attempt(address.attempt.attempt);
  out->set_range(address.range);
  out->set_layer(address.layer);
  out->set_kind(static_cast<uint32_t>(address.kind));
}

}  // namespace

void ToWire(const BoundaryAddress& address, uint64_t total_bytes, v1::BoundaryMessage* out) {
  SetAddress(address, out);
  out->set_total_bytes(total_bytes);
}

void ToWire(const BoundaryAddress& address, v1::BoundaryAck* out) { SetAddress(address, out); }

void ToWire(const DeviceOffer& offer, v1::BoundaryMessage* out) {
  out->mutable_device_link()->set_id(offer.id.data(), offer.id.size());
  out->mutable_device_link()->set_card(offer.card);
}

absl::StatusOr<BoundaryAddress> AddressOf(const v1::BoundaryMessage& message) {
  if (message.kind() > UINT8_MAX) return absl::InvalidArgumentError("kind: over 255");
  return BoundaryAddress{{message.attempt().prompt(), message.attempt().attempt()},
                         message.range(),
                         message.layer(),
                         static_cast<PartKind>(message.kind())};
}

absl::StatusOr<DeviceOffer> OfferOf(const v1::BoundaryMessage& message) {
  DeviceOffer offer;
  const std::string& id = message.device_link().id();
  if (id.size() != offer.id.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("device_link.id: has ", id.size(), " bytes, must have ", offer.id.size()));
  }
  std::copy(id.begin(), id.end(), offer.id.begin());
  offer.card = message.device_link().card();
  return offer;
}

bool Acknowledges(const v1::BoundaryAck& ack, const BoundaryAddress& address) {
  return ack.attempt().prompt() == address.attempt.prompt &&
         ack.attempt().attempt() == address.attempt.attempt && ack.range() == address.range &&
         ack.layer() == address.layer && ack.kind() == static_cast<uint32_t>(address.kind);
}

}  // namespace deltafill::worker
