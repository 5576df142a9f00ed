// Handles: arbitrary text, and arbitrary bytes behind a right checksum, so that flags, ids and
// tokens are reached. Decoding never crashes, and accepts only what encoding makes.
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "coordinator/front/handle.h"
#include "coordinator/front/limits.h"

namespace deltafill::coordinator {
namespace {

std::string Base64Url(std::string_view raw) {
  static constexpr char kAlphabet[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string text;
  for (size_t bit = 0; bit < raw.size() * 8; bit += 6) {
    uint32_t value = 0;
    for (size_t i = bit; i < bit + 6; ++i) {
      const uint32_t byte = i / 8 < raw.size() ? static_cast<uint8_t>(raw[i / 8]) : 0;
      value = value << 1 | (byte >> (7 - i % 8) & 1);
    }
    text.push_back(kAlphabet[value]);
  }
  return text;
}

void Decode(std::string_view text) {
  const auto ref = DecodeStateReference(text, "state");
  if (!ref.ok()) return;
  if (ref->tail.size() > kTailTokensMax) std::abort();
  const bool name = text.substr(0, 4) == "st1.";
  if ((name ? EncodeStateName(ref->state) : EncodePrefixRef(*ref)) != text) std::abort();
}

}  // namespace
}  // namespace deltafill::coordinator

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  std::string raw(reinterpret_cast<const char*>(bytes), size);
  deltafill::coordinator::Decode(raw);
  const uint64_t hash = XXH3_64bits(raw.data(), raw.size());
  for (int i = 0; i < 4; ++i) raw.push_back(static_cast<char>(hash >> (8 * i) & 255));
  deltafill::coordinator::Decode("df1." + deltafill::coordinator::Base64Url(raw));
  return 0;
}
