#include "coordinator/tokenizer/code_point_set.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/utf8.h"

namespace deltafill::coordinator {
namespace {

#include "coordinator/tokenizer/unicode_ranges.inc"

constexpr std::string_view kCategories[] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn", "Cs"};

// In the order of kCategories.
constexpr std::string_view kCategoryLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcd";

// Where one of `letters` stands in the run lengths.
CodePointSet RunsOf(std::string_view runs, std::string_view letters) {
  std::vector<CodePointSet::Range> ranges;
  uint32_t code_point = 0;
  for (size_t at = 0; at < runs.size();) {
    const char letter = runs[at++];
    uint32_t length = 0;
    while (at < runs.size() && runs[at] >= '0' && runs[at] <= '9') {
      length = length * 10 + static_cast<uint32_t>(runs[at++] - '0');
    }
    length = std::max(length, 1u);
    if (letters.find(letter) != letters.npos)
      ranges.push_back({code_point, code_point + length - 1});
    code_point += length;
  }
  return CodePointSet::FromRanges(std::move(ranges));
}

}  // namespace

CodePointSet CodePointSet::Of(uint32_t first, uint32_t last) {
  CodePointSet set;
  set.ranges_.push_back({first, last});
  return set;
}

CodePointSet CodePointSet::FromRanges(std::vector<Range> any_order) {
  std::sort(any_order.begin(), any_order.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  CodePointSet set;
  for (const Range& range : any_order) {
    if (!set.ranges_.empty() && range.first <= set.ranges_.back().last + 1) {
      set.ranges_.back().last = std::max(set.ranges_.back().last, range.last);
    } else {
      set.ranges_.push_back(range);
    }
  }
  return set;
}

CodePointSet CodePointSet::Union(const CodePointSet& other) const {
  std::vector<Range> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return FromRanges(std::move(both));
}

CodePointSet CodePointSet::Intersection(const CodePointSet& other) const {
  return Complement().Union(other.Complement()).Complement();
}

CodePointSet CodePointSet::Complement() const {
  CodePointSet rest;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) rest.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next < kCodePoints) rest.ranges_.push_back({next, kCodePoints - 1});
  return rest;
}

CodePointSet CodePointSet::WithOtherCase() const {
  constexpr uint32_t kLongS = 0x17F;
  constexpr uint32_t kKelvin = 0x212A;
  std::vector<Range> more = ranges_;
  for (uint32_t lower = 'a'; lower <= 'z'; ++lower) {
    const uint32_t upper = lower - 'a' + 'A';
    const uint32_t third = lower == 's' ? kLongS : lower == 'k' ? kKelvin : lower;
    if (Contains(lower) || Contains(upper) || Contains(third)) {
      for (const uint32_t each : {lower, upper, third}) more.push_back({each, each});
    }
  }
  return FromRanges(std::move(more));
}

bool CodePointSet::Contains(uint32_t code_point) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), code_point,
                       [](uint32_t point, const Range& range) { return point < range.first; });
  return after != ranges_.begin() && code_point <= std::prev(after)->last;
}

absl::StatusOr<CodePointSet> UnicodeProperty(std::string_view name) {
  if (name == "Han") return RunsOf(kHanRuns, "H");
  std::string letters;
  for (size_t i = 0; i < std::size(kCategories); ++i) {
    if (kCategories[i] == name || (name.size() == 1 && kCategories[i].front() == name.front())) {
      letters.push_back(kCategoryLetters[i]);
    }
  }
  if (letters.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("\\p{", std::string(name), "}: only general categories and Han are there"));
  }
  return RunsOf(kCategoryRuns, letters);
}

const CodePointSet& WhiteSpace() {
  static const CodePointSet set = CodePointSet::FromRanges({{0x09, 0x0D},
                                                            {0x20, 0x20},
                                                            {0x85, 0x85},
                                                            {0xA0, 0xA0},
                                                            {0x1680, 0x1680},
                                                            {0x2000, 0x200A},
                                                            {0x2028, 0x2029},
                                                            {0x202F, 0x202F},
                                                            {0x205F, 0x205F},
                                                            {0x3000, 0x3000}});
  return set;
}

const CodePointSet& WordCharacters() {
  // Letters, marks, Nd, Nl, Pc; symbols that are Other_Alphabetic; Join_Control.
  static const CodePointSet set = RunsOf(kCategoryRuns, "ABCDEFGHIJL")
                                      .Union(CodePointSet::FromRanges({{0x24B6, 0x24E9},
                                                                       {0x1F130, 0x1F149},
                                                                       {0x1F150, 0x1F169},
                                                                       {0x1F170, 0x1F189},
                                                                       {0x200C, 0x200D}}));
  return set;
}

}  // namespace deltafill::coordinator
