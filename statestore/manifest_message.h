// Manifest <-> protobuf StoredManifest, for the disk and for the wire.
#ifndef DELTAFILL_STATESTORE_MANIFEST_MESSAGE_H_
#define DELTAFILL_STATESTORE_MANIFEST_MESSAGE_H_

#include "absl/status/statusor.h"
#include "statestore/store.h"

namespace deltafill {

namespace v1 {
class StoredManifest;
class StoredPartRef;
}  // namespace v1

void ToMessage(const Manifest& manifest, v1::StoredManifest* message);
void ToMessage(const PartRef& part, v1::StoredPartRef* message);

// INVALID_ARGUMENT naming the field and the limit.
absl::StatusOr<Manifest> FromMessage(const v1::StoredManifest& message);

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_MANIFEST_MESSAGE_H_
