// State handles, the API's names of states.
//
//   "df1." + base64url(flags, state id, tail tokens, checksum)   a state and the tokens after it
//   "st1." + 64 hexadecimal digits                               a state id alone
//
// Before base64 (no padding), in bytes:
//   0  1   flags: bit 0 set for boundary 0 (the state id is then the root of the key chain)
//   1  32  state id
//   33 ..  tail tokens, at most 64, each a minimal LEB128 varint of at most 32 bits
//   .. 4   low half of XXH3-64 of all bytes before, little-endian: against typing errors only; what
//          protects a state is that its id cannot be guessed and that the tenant is compared
//
// A handle contains prompt tokens: it is never logged and never repeated in a message.
#ifndef DELTAFILL_COORDINATOR_FRONT_HANDLE_H_
#define DELTAFILL_COORDINATOR_FRONT_HANDLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "statestore/identity.h"

namespace deltafill::coordinator {

struct PrefixRef {
  StateId state;               // at boundary 0: the root key
  bool zero = false;           // boundary 0
  std::vector<uint32_t> tail;  // at most kTailTokensMax
  friend bool operator==(const PrefixRef&, const PrefixRef&) = default;
};

// ref.tail has at most kTailTokensMax tokens.
std::string EncodePrefixRef(const PrefixRef& ref);

// Strict: exactly the strings that EncodePrefixRef makes. INVALID_ARGUMENT for anything else;
// FAILED_PRECONDITION naming both for a handle of another format version. `field` begins the
// message.
absl::StatusOr<PrefixRef> DecodePrefixRef(std::string_view handle, std::string_view field);

std::string EncodeStateName(const StateId& state);

// A handle or a state name.
absl::StatusOr<PrefixRef> DecodeStateReference(std::string_view text, std::string_view field);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_HANDLE_H_
