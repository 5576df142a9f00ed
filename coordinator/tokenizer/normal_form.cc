#include "coordinator/tokenizer/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "coordinator/tokenizer/code_point_set.h"
#include "coordinator/tokenizer/utf8.h"

namespace deltafill::coordinator {
namespace {

using CodePoints = std::vector<utf8proc_int32_t>;

constexpr int kDecompositionMax = 32;  // the longest one has 4 code points

// Code points that are in NFC by themselves and that nothing before them changes or is changed by:
// no marks, nothing with a canonical decomposition that is not made again, no second half of one.
bool IsStable(uint32_t code_point) {
  if (code_point < 0x300) return true;
  constexpr CodePointSet::Range kStable[] = {
      {0x388, 0x482},   {0x48A, 0x590},   {0x2002, 0x20CF},   {0x2200, 0x2328},
      {0x232B, 0x2ADB}, {0x3000, 0x3029}, {0x3030, 0x3098},   {0x309B, 0xA66E},
      {0xAC00, 0xD7A3}, {0xFF00, 0xFFEF}, {0x1F000, 0x1FAFF}, {0x20000, 0x2F7FF}};
  return std::any_of(std::begin(kStable), std::end(kStable), [code_point](const auto& range) {
    return range.first <= code_point && code_point <= range.last;
  });
}

// To be left where they are: marks, and one composition, that are younger than Unicode 9; U+11A7,
// which utf8proc takes for a final consonant.
const CodePointSet& Unknown() {
  static const CodePointSet set = CodePointSet::FromRanges(
      {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
       {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x11A7, 0x11A7},
       {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
       {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
       {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
       {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E},
       {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
       {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
       {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
       {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}});
  return set;
}

int CombiningClass(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

void AppendDecomposed(uint32_t code_point, CodePoints* code_points) {
  utf8proc_int32_t parts[kDecompositionMax];
  int boundary = 0;
  const auto whole = static_cast<utf8proc_int32_t>(code_point);
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(whole, parts, kDecompositionMax, UTF8PROC_DECOMPOSE, &boundary);
  if (count < 1 || count > kDecompositionMax) {
    code_points->push_back(whole);
  } else {
    code_points->insert(code_points->end(), parts, parts + count);
  }
}

// Canonical order. utf8proc's own sorting is quadratic in the length of a run of marks.
void OrderMarks(CodePoints* code_points) {
  const auto is_mark = [](utf8proc_int32_t point) { return CombiningClass(point) != 0; };
  for (auto begin = code_points->begin(); begin != code_points->end();) {
    begin = std::find_if(begin, code_points->end(), is_mark);
    const auto end = std::find_if_not(begin, code_points->end(), is_mark);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    begin = end;
  }
}

// Composes what is decomposed in *code_points, appends it and empties *code_points.
void FlushComposed(CodePoints* code_points, std::string* out) {
  OrderMarks(code_points);
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      code_points->data(), static_cast<utf8proc_ssize_t>(code_points->size()),
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendUtf8(static_cast<uint32_t>((*code_points)[static_cast<size_t>(i)]), out);
  }
  code_points->clear();
}

}  // namespace

std::string InNormalFormC(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  CodePoints pending;      // decomposed, not yet composed
  size_t copied = 0;       // what is before is in `out` or in `pending`
  size_t last_stable = 0;  // where the last stable code point starts: what follows may change it
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const uint32_t code_point = NextCodePoint(text, &at);
    if (IsStable(code_point)) {
      if (!pending.empty()) FlushComposed(&pending, &out);
      last_stable = start;
      continue;
    }
    if (copied < start) {
      out.append(text.substr(copied, last_stable - copied));
      size_t stable = last_stable;
      AppendDecomposed(NextCodePoint(text, &stable), &pending);
    }
    if (Unknown().Contains(code_point)) {
      FlushComposed(&pending, &out);
      AppendUtf8(code_point, &out);
    } else {
      AppendDecomposed(code_point, &pending);
    }
    copied = at;
  }
  FlushComposed(&pending, &out);
  out.append(text.substr(copied));
  return out;
}

}  // namespace deltafill::coordinator
