// Well-formed UTF-8, and what is none.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_UTF8_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deltafill::coordinator {

inline constexpr uint32_t kCodePoints = 0x110000;

// Bytes of the well-formed sequence (Unicode, table 3-7: no overlong forms, no surrogates, nothing
// above U+10FFFF) that starts at text[at]; 0 if none does. at < text.size().
size_t Utf8SequenceBytes(std::string_view text, size_t at);

// Bytes that a sequence has by its first byte. Of well-formed text only.
inline size_t Utf8BytesByLead(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The code point that starts at text[*at] of well-formed text; moves *at behind it.
uint32_t NextCodePoint(std::string_view text, size_t* at);

void AppendUtf8(uint32_t code_point, std::string* text);

std::vector<uint32_t> CodePointsOf(std::string_view well_formed);

// A run of well-formed text, or of bytes that belong to no well-formed sequence; both maximal.
struct Utf8Run {
  std::string_view bytes;
  bool well_formed = true;
};

// The run that starts at text[at]. at < text.size().
Utf8Run NextUtf8Run(std::string_view text, size_t at);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_UTF8_H_
