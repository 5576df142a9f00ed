#include "coordinator/front/handle.h"

#include <xxhash.h>

#include <array>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/lower_hex.h"

namespace deltafill::coordinator {
namespace {

constexpr std::string_view kHandlePrefix = "df1.";
constexpr std::string_view kStatePrefix = "st1.";
constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr uint8_t kZeroFlag = 1;

std::array<int8_t, 256> MakeReverseAlphabet() {
  std::array<int8_t, 256> reverse;
  reverse.fill(-1);
  for (int8_t i = 0; i < 64; ++i) reverse[static_cast<uint8_t>(kAlphabet[i])] = i;
  return reverse;
}

std::string EncodeBase64Url(std::string_view raw) {
  std::string text;
  text.reserve((raw.size() * 4 + 2) / 3);
  uint32_t bits = 0;
  int held = 0;
  for (char c : raw) {
    bits = bits << 8 | static_cast<uint8_t>(c);
    for (held += 8; held >= 6; held -= 6) text.push_back(kAlphabet[bits >> (held - 6) & 63]);
  }
  if (held > 0) text.push_back(kAlphabet[bits << (6 - held) & 63]);
  return text;
}

// nullopt for a character outside the alphabet, an impossible length or unused bits that are set.
std::optional<std::string> DecodeBase64Url(std::string_view text) {
  static const std::array<int8_t, 256> kReverse = MakeReverseAlphabet();
  if (text.size() % 4 == 1) return std::nullopt;
  std::string raw;
  raw.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int held = 0;
  for (char c : text) {
    const int8_t value = kReverse[static_cast<uint8_t>(c)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    held += 6;
    if (held >= 8) {
      held -= 8;
      raw.push_back(static_cast<char>(bits >> held & 255));
    }
  }
  if ((bits & ((1u << held) - 1)) != 0) return std::nullopt;
  return raw;
}

void AppendVarint(uint32_t value, std::string* raw) {
  for (; value >= 128; value >>= 7) raw->push_back(static_cast<char>((value & 127) | 128));
  raw->push_back(static_cast<char>(value));
}

// Takes one varint off the front; false if it is cut off, not minimal or above 32 bits.
bool TakeVarint(std::string_view* raw, uint32_t* value) {
  uint64_t sum = 0;
  for (size_t i = 0; i < raw->size() && i < kVarintBytesMax; ++i) {
    const uint8_t byte = static_cast<uint8_t>((*raw)[i]);
    sum |= uint64_t{byte & 127u} << (7 * i);
    if (byte >= 128) continue;
    if ((i > 0 && byte == 0) || sum > UINT32_MAX) return false;
    *value = static_cast<uint32_t>(sum);
    raw->remove_prefix(i + 1);
    return true;
  }
  return false;
}

std::array<char, kHandleChecksumBytes> Checksum(std::string_view raw) {
  const uint64_t hash = XXH3_64bits(raw.data(), raw.size());
  std::array<char, kHandleChecksumBytes> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>((hash >> (8 * i)) & 255);
  return bytes;
}

absl::Status Malformed(std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(field), ": not a state handle: ", std::string(what)));
}

// "df7." and the like: a handle, but of a format that this version cannot read.
bool HasOtherVersion(std::string_view text, std::string_view letters) {
  if (text.substr(0, 2) != letters) return false;
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos || dot < 3 || dot > 6) return false;
  return text.substr(2, dot - 2).find_first_not_of("0123456789") == std::string_view::npos &&
         text.substr(2, dot - 2) != "1";
}

absl::Status OtherVersion(std::string_view field, std::string_view text) {
  return absl::FailedPreconditionError(absl::StrCat(
      std::string(field), ": a handle of format version ",
      std::string(text.substr(2, text.find('.') - 2)), "; this service reads version 1"));
}

}  // namespace

std::string EncodePrefixRef(const PrefixRef& ref) {
  std::string raw;
  raw.reserve(kHandleRawBytesMax);
  raw.push_back(static_cast<char>(ref.zero ? kZeroFlag : 0));
  raw.append(ref.state.view());
  for (uint32_t token : ref.tail) AppendVarint(token, &raw);
  const auto checksum = Checksum(raw);
  raw.append(checksum.data(), checksum.size());
  return std::string(kHandlePrefix) + EncodeBase64Url(raw);
}

absl::StatusOr<PrefixRef> DecodePrefixRef(std::string_view handle, std::string_view field) {
  if (HasOtherVersion(handle, "df")) return OtherVersion(field, handle);
  if (handle.substr(0, kHandlePrefix.size()) != kHandlePrefix) {
    return Malformed(field, "it must begin with \"df1.\"");
  }
  if (handle.size() > kHandleCharsMax) {
    return Malformed(field, absl::StrCat("longer than ", kHandleCharsMax, " characters"));
  }
  const std::optional<std::string> raw = DecodeBase64Url(handle.substr(kHandlePrefix.size()));
  if (!raw.has_value()) return Malformed(field, "a character or the length is wrong");
  if (raw->size() < kHandleRawBytesMin) return Malformed(field, "it is cut off");
  std::string_view rest(*raw);
  const std::string_view checksum = rest.substr(rest.size() - kHandleChecksumBytes);
  rest.remove_suffix(kHandleChecksumBytes);
  const auto expected = Checksum(rest);
  if (checksum != std::string_view(expected.data(), expected.size())) {
    return Malformed(field, "its checksum does not match");
  }
  PrefixRef ref;
  const uint8_t flags = static_cast<uint8_t>(rest[0]);
  if ((flags & ~kZeroFlag) != 0) return Malformed(field, "unknown flags");
  ref.zero = flags == kZeroFlag;
  StateId::FromBytes(rest.substr(1, 32), &ref.state);
  rest.remove_prefix(33);
  while (!rest.empty()) {
    uint32_t token = 0;
    if (!TakeVarint(&rest, &token)) return Malformed(field, "a tail token is malformed");
    if (ref.tail.size() == kTailTokensMax) {
      return Malformed(field, absl::StrCat("more than ", kTailTokensMax, " tail tokens"));
    }
    ref.tail.push_back(token);
  }
  return ref;
}

std::string EncodeStateName(const StateId& state) {
  return std::string(kStatePrefix) + state.ToHex();
}

absl::StatusOr<PrefixRef> DecodeStateReference(std::string_view text, std::string_view field) {
  if (HasOtherVersion(text, "st")) return OtherVersion(field, text);
  if (text.substr(0, kStatePrefix.size()) != kStatePrefix) return DecodePrefixRef(text, field);
  text.remove_prefix(kStatePrefix.size());
  if (text.size() != 64) return Malformed(field, "\"st1.\" must be followed by 64 digits");
  PrefixRef ref;
  const std::optional<std::string> state = FromLowerHex(text);
  if (!state) return Malformed(field, "\"st1.\" must be followed by lower-case hexadecimal");
  StateId::FromBytes(*state, &ref.state);
  return ref;
}

}  // namespace deltafill::coordinator
