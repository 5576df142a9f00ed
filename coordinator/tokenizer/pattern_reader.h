// Reading the text of a pattern: code points, escapes and character classes.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_PATTERN_READER_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_PATTERN_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/tokenizer/code_point_set.h"

namespace deltafill::coordinator {

class PatternReader {
 public:
  // Well-formed UTF-8 that outlives the reader.
  explicit PatternReader(std::string_view pattern) : pattern_(pattern) {}

  bool AtEnd() const { return at_ == pattern_.size(); }
  bool Sees(std::string_view text) const { return pattern_.substr(at_, text.size()) == text; }
  bool Takes(std::string_view text);
  uint32_t TakeCodePoint();  // not at the end
  std::optional<uint32_t> TakeNumber();

  // What a backslash starts, the backslash taken already; a set, and whether it is one code point.
  struct Escape {
    CodePointSet set;
    std::optional<uint32_t> single;
  };
  absl::StatusOr<Escape> TakeEscape(bool any_case);

  // The rest of a class, its "[" taken already. any_case: it stands under (?i: ).
  absl::StatusOr<CodePointSet> TakeClass(bool any_case, int depth = 0);

  // The set of one literal code point. UNIMPLEMENTED if it has case that is not ASCII's.
  absl::StatusOr<CodePointSet> Literal(uint32_t code_point, bool any_case) const;

  absl::Status Malformed(std::string_view what) const;
  absl::Status Unsupported(std::string_view what) const;

 private:
  absl::StatusOr<Escape> TakeProperty(bool negated, bool any_case);
  absl::StatusOr<Escape> TakeHex(char letter);
  absl::StatusOr<CodePointSet> TakeClassOperand(bool any_case, int depth);
  absl::StatusOr<Escape> TakeClassMember(bool any_case, int depth);
  absl::StatusOr<CodePointSet> TakeRange(uint32_t first, bool any_case, int depth);

  std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_PATTERN_READER_H_
