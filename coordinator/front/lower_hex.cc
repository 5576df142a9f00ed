#include "coordinator/front/lower_hex.h"

#include <algorithm>

#include "absl/strings/escaping.h"

namespace deltafill::coordinator {

bool IsLowerHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::optional<std::string> FromLowerHex(std::string_view text) {
  if (text.size() % 2 != 0 || !IsLowerHex(text)) return std::nullopt;
  return absl::HexStringToBytes({text.data(), text.size()});
}

}  // namespace deltafill::coordinator
