// How messages lie on the disk: version byte, protobuf message, XXH3-64 of both.
#ifndef DELTAFILL_STATESTORE_SEALED_MESSAGE_H_
#define DELTAFILL_STATESTORE_SEALED_MESSAGE_H_

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "statestore/records.h"

namespace deltafill {

// DATA_LOSS: "WHAT: WHY".
inline absl::Status Malformed(const char* what, const std::string& why) {
  return absl::DataLossError(absl::StrCat(what, ": ", why));
}

template <typename Message>
std::string Seal(char version, const Message& message) {
  std::string encoded(1, version);
  message.AppendToString(&encoded);
  const uint64_t checksum = XXH3_64bits(encoded.data(), encoded.size());
  encoded += EncodeScalar(checksum);
  return encoded;
}

// DATA_LOSS naming `what` if it is not what Seal makes or longer than bytes_max.
template <typename Message>
absl::Status Unseal(const char* what, char version, size_t bytes_max, std::string_view encoded,
                    Message* message) {
  constexpr size_t kChecksumBytes = sizeof(uint64_t);
  if (encoded.size() < 1 + kChecksumBytes) return Malformed(what, "cut short");
  if (encoded.size() > bytes_max) return Malformed(what, "longer than any may be");
  if (encoded[0] != version) return Malformed(what, "unknown version");
  const std::string_view covered = encoded.substr(0, encoded.size() - kChecksumBytes);
  if (DecodeScalar<uint64_t>(encoded.substr(covered.size())) !=
      XXH3_64bits(covered.data(), covered.size())) {
    return Malformed(what, "its checksum does not match");
  }
  if (!message->ParseFromArray(covered.data() + 1, static_cast<int>(covered.size() - 1))) {
    return Malformed(what, "not a message");
  }
  return absl::OkStatus();
}

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_SEALED_MESSAGE_H_
