// Code points grouped by what a set of patterns can tell apart.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_CHARACTER_CLASSES_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_CHARACTER_CLASSES_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/code_point_set.h"
#include "coordinator/tokenizer/utf8.h"

namespace deltafill::coordinator {

// Two code points have the same class, a byte, if they are in the same ones of the given sets.
// Patterns are matched over the text's classes, one byte a code point: no decoding, no Unicode
// tables and no case folding are left for the matching. Immutable and thread-safe.
class CharacterClasses {
 public:
  // UNIMPLEMENTED if the sets make more than 255 classes.
  static absl::StatusOr<CharacterClasses> Of(const std::vector<CodePointSet>& sets);

  // Of the sets given to Of, in their order: the classes that make up the set, ascending.
  const std::vector<uint8_t>& ClassesOfSet(size_t set) const { return classes_of_set_[set]; }

  // One byte for every code point of well-formed text. Returns whether the text is all ASCII.
  bool Classify(std::string_view text, std::string* classes) const;

 private:
  static constexpr uint32_t kPageBits = 8;

  std::array<char, 128> ascii_{};
  std::array<uint16_t, (kCodePoints >> kPageBits)> page_of_{};
  std::string pages_;  // 256 classes each
  std::vector<std::vector<uint8_t>> classes_of_set_;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_CHARACTER_CLASSES_H_
