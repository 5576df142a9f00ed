#include "coordinator/tokenizer/utf8.h"

#include <cstring>

namespace deltafill::coordinator {
namespace {

bool Continues(std::string_view text, size_t at, uint8_t low = 0x80, uint8_t high = 0xBF) {
  if (at >= text.size()) return false;
  const auto byte = static_cast<uint8_t>(text[at]);
  return low <= byte && byte <= high;
}

// The first place from `at` on where a byte is not ASCII.
size_t SkipAscii(std::string_view text, size_t at) {
  while (at + 8 <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080) != 0) break;
    at += 8;
  }
  while (at < text.size() && static_cast<uint8_t>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

size_t Utf8SequenceBytes(std::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  if (lead < 0xE0) return Continues(text, at + 1) ? 2 : 0;
  if (lead < 0xF0) {
    const uint8_t low = lead == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : 0xBF;
    return Continues(text, at + 1, low, high) && Continues(text, at + 2) ? 3 : 0;
  }
  const uint8_t low = lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xF4 ? 0x8F : 0xBF;
  const bool whole =
      Continues(text, at + 1, low, high) && Continues(text, at + 2) && Continues(text, at + 3);
  return whole ? 4 : 0;
}

uint32_t NextCodePoint(std::string_view text, size_t* at) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(text[*at + i]));
  };
  const uint32_t lead = byte(0);
  uint32_t code_point = lead;
  size_t bytes = 1;
  if (lead >= 0xF0) {
    code_point = (lead & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63);
    bytes = 4;
  } else if (lead >= 0xE0) {
    code_point = (lead & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63);
    bytes = 3;
  } else if (lead >= 0x80) {
    code_point = (lead & 31) << 6 | (byte(1) & 63);
    bytes = 2;
  }
  *at += bytes;
  return code_point;
}

void AppendUtf8(uint32_t code_point, std::string* text) {
  const auto push = [text](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
    push(0x80 | (code_point & 63));
  } else if (code_point < 0x10000) {
    push(0xE0 | code_point >> 12);
    push(0x80 | (code_point >> 6 & 63));
    push(0x80 | (code_point & 63));
  } else {
    push(0xF0 | code_point >> 18);
    push(0x80 | (code_point >> 12 & 63));
    push(0x80 | (code_point >> 6 & 63));
    push(0x80 | (code_point & 63));
  }
}

std::vector<uint32_t> CodePointsOf(std::string_view well_formed) {
  std::vector<uint32_t> code_points;
  for (size_t at = 0; at < well_formed.size();) {
    code_points.push_back(NextCodePoint(well_formed, &at));
  }
  return code_points;
}

Utf8Run NextUtf8Run(std::string_view text, size_t at) {
  const bool well_formed = Utf8SequenceBytes(text, at) > 0;
  size_t end = at;
  while (end < text.size()) {
    if (well_formed) end = SkipAscii(text, end);
    if (end == text.size()) break;
    const size_t bytes = Utf8SequenceBytes(text, end);
    if ((bytes > 0) != well_formed) break;
    end += well_formed ? bytes : 1;
  }
  return {text.substr(at, end - at), well_formed};
}

}  // namespace deltafill::coordinator
