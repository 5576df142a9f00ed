// Bytes as lower-case hexadecimal: states' names, hashes of tokens, pages, commits.
#ifndef DELTAFILL_COORDINATOR_FRONT_LOWER_HEX_H_
#define DELTAFILL_COORDINATOR_FRONT_LOWER_HEX_H_

#include <optional>
#include <string>
#include <string_view>

namespace deltafill::coordinator {

// Whether all of it is in [0-9a-f].
bool IsLowerHex(std::string_view text);

// The bytes; none unless the text is pairs of such digits.
std::optional<std::string> FromLowerHex(std::string_view text);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_LOWER_HEX_H_
