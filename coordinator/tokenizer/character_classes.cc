#include "coordinator/tokenizer/character_classes.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "absl/status/status.h"

namespace deltafill::coordinator {
namespace {

constexpr size_t kClassesMax = 255;

// Where the classes can change: first code points of intervals inside which no set begins or ends.
std::vector<uint32_t> IntervalStarts(const std::vector<CodePointSet>& sets) {
  std::vector<uint32_t> starts{0};
  for (const CodePointSet& set : sets) {
    for (const CodePointSet::Range& range : set.ranges()) {
      starts.push_back(range.first);
      if (range.last + 1 < kCodePoints) starts.push_back(range.last + 1);
    }
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  return starts;
}

}  // namespace

absl::StatusOr<CharacterClasses> CharacterClasses::Of(const std::vector<CodePointSet>& sets) {
  CharacterClasses classes;
  classes.classes_of_set_.resize(sets.size());
  std::map<std::vector<bool>, uint8_t> class_of_membership;
  std::string every(kCodePoints, '\0');
  const std::vector<uint32_t> starts = IntervalStarts(sets);
  for (size_t i = 0; i < starts.size(); ++i) {
    std::vector<bool> membership(sets.size());
    for (size_t s = 0; s < sets.size(); ++s) membership[s] = sets[s].Contains(starts[i]);
    auto found = class_of_membership.find(membership);
    if (found == class_of_membership.end()) {
      if (class_of_membership.size() == kClassesMax) {
        return absl::UnimplementedError("pattern: tells more than 255 classes of characters apart");
      }
      const auto number = static_cast<uint8_t>(class_of_membership.size() + 1);
      for (size_t s = 0; s < sets.size(); ++s) {
        if (membership[s]) classes.classes_of_set_[s].push_back(number);
      }
      found = class_of_membership.emplace(std::move(membership), number).first;
    }
    const uint32_t end = i + 1 < starts.size() ? starts[i + 1] : kCodePoints;
    std::fill(every.begin() + starts[i], every.begin() + end, static_cast<char>(found->second));
  }
  std::copy_n(every.begin(), classes.ascii_.size(), classes.ascii_.begin());
  std::map<std::string, uint16_t> page_numbers;
  constexpr size_t kPage = size_t{1} << kPageBits;
  for (size_t page = 0; page < classes.page_of_.size(); ++page) {
    const auto [found, is_new] = page_numbers.try_emplace(
        every.substr(page * kPage, kPage), static_cast<uint16_t>(page_numbers.size()));
    if (is_new) classes.pages_ += found->first;
    classes.page_of_[page] = found->second;
  }
  return classes;
}

bool CharacterClasses::Classify(std::string_view text, std::string* classes) const {
  classes->resize(text.size());
  char* out = classes->data();
  bool ascii = true;
  for (size_t at = 0; at < text.size();) {
    uint64_t word = 0x80;
    if (at + 8 <= text.size()) std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080) == 0) {
      for (int i = 0; i < 8; ++i) out[i] = ascii_[static_cast<uint8_t>(text[at + i])];
      out += 8;
      at += 8;
    } else if (static_cast<uint8_t>(text[at]) < 0x80) {
      *out++ = ascii_[static_cast<uint8_t>(text[at++])];
    } else {
      ascii = false;
      const uint32_t code_point = NextCodePoint(text, &at);
      const size_t page = page_of_[code_point >> kPageBits];
      *out++ = pages_[page << kPageBits | (code_point & ((1 << kPageBits) - 1))];
    }
  }
  classes->resize(static_cast<size_t>(out - classes->data()));
  return ascii;
}

}  // namespace deltafill::coordinator
