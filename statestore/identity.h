// Digests and the names built from them: prefix keys, part ids, model fingerprints.
#ifndef DELTAFILL_STATESTORE_IDENTITY_H_
#define DELTAFILL_STATESTORE_IDENTITY_H_

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace deltafill {

inline constexpr int kBlockTokenCount = 64;

// A SHA-256 value. The tag keeps kinds of digests apart at compile time.
template <typename Tag>
struct Digest {
  std::array<uint8_t, 32> bytes{};
  friend auto operator<=>(const Digest&, const Digest&) = default;
  std::string ToHex() const {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string hex;
    hex.reserve(64);
    for (uint8_t byte : bytes) {
      hex.push_back(kDigits[byte >> 4]);
      hex.push_back(kDigits[byte & 15]);
    }
    return hex;
  }
  // First 8 bytes as a table tag.
  uint64_t Tag64() const {
    uint64_t tag;
    std::memcpy(&tag, bytes.data(), sizeof(tag));
    return tag;
  }
  std::string_view view() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // raw must have 32 bytes; false otherwise.
  static bool FromBytes(std::string_view raw, Digest* out) {
    if (raw.size() != 32) return false;
    std::memcpy(out->bytes.data(), raw.data(), 32);
    return true;
  }
};

using StateId = Digest<struct StateIdTag>;  // a prefix key: names a boundary of one tenant
using PartId = Digest<struct PartIdTag>;    // SHA-256(salt || header || payload)
using ModelFingerprint = Digest<struct FingerprintTag>;  // architecture and every weight
using NumericsId = Digest<struct NumericsTag>;           // SHA-256 of the numerics string
using TenantSalt = Digest<struct SaltTag>;               // 32 random bytes, secret

struct DigestHash {
  template <typename Tag>
  size_t operator()(const Digest<Tag>& digest) const {
    return digest.Tag64();
  }
};

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_IDENTITY_H_
