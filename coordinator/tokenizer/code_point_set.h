// Sets of code points, and those that Unicode 16 names.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_CODE_POINT_SET_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_CODE_POINT_SET_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace deltafill::coordinator {

// Ranges ascend, do not touch, and lie below kCodePoints. A value.
class CodePointSet {
 public:
  struct Range {
    uint32_t first = 0;
    uint32_t last = 0;  // itself inside
    bool operator==(const Range&) const = default;
  };

  CodePointSet() = default;
  static CodePointSet Of(uint32_t first, uint32_t last);
  static CodePointSet FromRanges(std::vector<Range> any_order);

  CodePointSet Union(const CodePointSet& other) const;
  CodePointSet Intersection(const CodePointSet& other) const;
  CodePointSet Complement() const;
  // With the code points that differ from its own in case only. Right for sets whose cased members
  // are ASCII letters (the sets that differ get 's' with U+017F, 'k' with U+212A).
  CodePointSet WithOtherCase() const;

  bool Contains(uint32_t code_point) const;
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const CodePointSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

// A general category ("Lu"), a group of them ("L"), or "Han". UNIMPLEMENTED for another name.
absl::StatusOr<CodePointSet> UnicodeProperty(std::string_view name);

// \s: the White_Space property.
const CodePointSet& WhiteSpace();

// \w as Rust's regex has it: alphabetic, marks, decimal digits, connecting punctuation, joiners.
const CodePointSet& WordCharacters();

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_CODE_POINT_SET_H_
