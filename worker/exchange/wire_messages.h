// Boundary messages and their acknowledgements on the wire.
#ifndef DELTAFILL_WORKER_EXCHANGE_WIRE_MESSAGES_H_
#define DELTAFILL_WORKER_EXCHANGE_WIRE_MESSAGES_H_

#include <cstdint>

#include "worker/exchange/boundary_exchange.h"
#include "worker/exchange/device_path.h"

namespace deltafill::v1 {
class BoundaryAck;
class BoundaryMessage;
}  // namespace deltafill::v1

namespace deltafill::worker {

// Without offset and bytes.
void ToWire(const BoundaryAddress& address, uint64_t total_bytes, v1::BoundaryMessage* out);
void ToWire(const BoundaryAddress& address, v1::BoundaryAck* out);
void ToWire(const DeviceOffer& offer, v1::BoundaryMessage* out);

// INVALID_ARGUMENT naming the field.
absl::StatusOr<BoundaryAddress> AddressOf(const v1::BoundaryMessage& message);
absl::StatusOr<DeviceOffer> OfferOf(const v1::BoundaryMessage& message);

bool Acknowledges(const v1::BoundaryAck& ack, const BoundaryAddress& address);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_WIRE_MESSAGES_H_
