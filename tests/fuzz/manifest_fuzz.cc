// Decoding manifests: arbitrary bytes, and the same as a message with version and checksum around
// it. What decodes must survive another round trip.
#include <xxhash.h>

#include <cstdlib>
#include <string>

#include "statestore/records.h"

namespace deltafill {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

void Decode(std::string_view encoded) {
  const absl::StatusOr<Manifest> manifest = DecodeManifest(encoded);
  if (!manifest.ok()) {
    Check(absl::IsDataLoss(manifest.status()));
    return;
  }
  Check(ValidateManifest(*manifest).ok());
  const absl::StatusOr<Manifest> again = DecodeManifest(EncodeManifest(*manifest));
  Check(again.ok());
  Check(again->state == manifest->state && again->tenant == manifest->tenant);
  Check(again->boundary == manifest->boundary && again->parts == manifest->parts);
}

}  // namespace
}  // namespace deltafill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  std::string encoded(reinterpret_cast<const char*>(bytes), size);
  deltafill::Decode(encoded);
  encoded.insert(encoded.begin(), '\1');
  encoded += deltafill::EncodeScalar(uint64_t{XXH3_64bits(encoded.data(), encoded.size())});
  deltafill::Decode(encoded);
  return 0;
}
