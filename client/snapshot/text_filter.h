// Which files a snapshot leaves out for what is in them.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_TEXT_FILTER_H_
#define DELTAFILL_CLIENT_SNAPSHOT_TEXT_FILTER_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace deltafill::client {

// The place of the first byte that is not part of well-formed UTF-8 (no overlong forms, no
// surrogates, nothing past U+10FFFF); npos if all of it is.
size_t FindInvalidUtf8(std::string_view text);

// Why: binary, not UTF-8, generated (known names, or a marker in the first 1,024 bytes). "" if the
// file is to be kept.
std::string WhyLeftOut(std::string_view path, std::string_view contents);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_TEXT_FILTER_H_
