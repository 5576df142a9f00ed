#include "client/byte_size.h"

#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace deltafill::client {

absl::StatusOr<uint64_t> ParseByteSize(std::string_view flag, const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  static constexpr std::string_view kUnits = "KMGT";
  double scale = 1;
  bool known = unit.empty();
  for (const char letter : kUnits) {
    if (known) break;
    scale *= 1024;
    known = unit == std::string(1, letter);
  }
  if (end == text.c_str() || !known || !(number >= 0) || !(number * scale < 0x1p63)) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(flag), " ", text, ": want bytes, or a number with K, M, G or T"));
  }
  return static_cast<uint64_t>(std::llround(number * scale));
}

}  // namespace deltafill::client
