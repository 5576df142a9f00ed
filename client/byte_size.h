// Sizes as people write them.
#ifndef DELTAFILL_CLIENT_BYTE_SIZE_H_
#define DELTAFILL_CLIENT_BYTE_SIZE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace deltafill::client {

// "1048576", "64K", "1.5G", "2T" (powers of 1024). INVALID_ARGUMENT beginning with the flag's name.
absl::StatusOr<uint64_t> ParseByteSize(std::string_view flag, const std::string& text);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_BYTE_SIZE_H_
