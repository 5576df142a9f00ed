#include "coordinator/tokenizer/pattern_reader.h"

#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/split_pattern.h"
#include "coordinator/tokenizer/utf8.h"

namespace deltafill::coordinator {
namespace {

constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ";

int HexDigit(char character) {
  if (character >= '0' && character <= '9') return character - '0';
  if (character >= 'a' && character <= 'f') return character - 'a' + 10;
  if (character >= 'A' && character <= 'F') return character - 'A' + 10;
  return -1;
}

PatternReader::Escape Single(uint32_t code_point) {
  return {CodePointSet::Of(code_point, code_point), code_point};
}

}  // namespace

absl::Status PatternReader::Malformed(std::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat("pattern: byte ", at_, ": ", std::string(what)));
}

absl::Status PatternReader::Unsupported(std::string_view what) const {
  return absl::UnimplementedError(
      absl::StrCat("pattern: byte ", at_, ": ", std::string(what), " is not supported"));
}

bool PatternReader::Takes(std::string_view text) {
  if (!Sees(text)) return false;
  at_ += text.size();
  return true;
}

uint32_t PatternReader::TakeCodePoint() { return NextCodePoint(pattern_, &at_); }

std::optional<uint32_t> PatternReader::TakeNumber() {
  uint32_t number = 0;
  const size_t start = at_;
  while (!AtEnd() && pattern_[at_] >= '0' && pattern_[at_] <= '9' && at_ - start < 6) {
    number = number * 10 + static_cast<uint32_t>(pattern_[at_++] - '0');
  }
  return at_ > start ? std::optional<uint32_t>(number) : std::nullopt;
}

absl::StatusOr<CodePointSet> PatternReader::Literal(uint32_t code_point, bool any_case) const {
  CodePointSet set = CodePointSet::Of(code_point, code_point);
  if (!any_case) return set;
  if (code_point >= 0x80) return Unsupported("what is not ASCII under (?i: )");
  return set.WithOtherCase();
}

absl::StatusOr<PatternReader::Escape> PatternReader::TakeProperty(bool negated, bool any_case) {
  std::string_view name;
  if (Takes("{")) {
    const size_t close = pattern_.find('}', at_);
    if (close == pattern_.npos) return Malformed("\\p{ without }");
    name = pattern_.substr(at_, close - at_);
    at_ = close + 1;
  } else {
    if (AtEnd()) return Malformed("\\p without a name");
    name = pattern_.substr(at_++, 1);
  }
  // A case's own category under (?i: ) would have to take in the other case.
  if (any_case && (name == "Lu" || name == "Ll" || name == "Lt")) {
    return Unsupported("\\p{Lu}, \\p{Ll} or \\p{Lt} under (?i: )");
  }
  absl::StatusOr<CodePointSet> set = UnicodeProperty(name);
  if (!set.ok()) return Unsupported("this \\p{..} (general categories and Han are there)");
  return Escape{negated ? set->Complement() : *std::move(set), std::nullopt};
}

absl::StatusOr<PatternReader::Escape> PatternReader::TakeHex(char letter) {
  const bool braces = letter == 'x' && Takes("{");
  const size_t digits_max = braces ? 6 : letter == 'x' ? 2 : 4;
  uint32_t value = 0;
  size_t digits = 0;
  while (digits < digits_max && !AtEnd() && HexDigit(pattern_[at_]) >= 0) {
    value = value * 16 + static_cast<uint32_t>(HexDigit(pattern_[at_++]));
    ++digits;
  }
  if (digits == 0 || (!braces && digits < digits_max)) return Malformed("hex digits are missing");
  if (braces && !Takes("}")) return Malformed("\\x{ without }");
  if (letter == 'x' && !braces && value >= 0x80) return Unsupported("\\x80 to \\xFF (a byte)");
  if (value >= kCodePoints || (value >= 0xD800 && value < 0xE000)) {
    return Malformed("no code point");
  }
  return Single(value);
}

absl::StatusOr<PatternReader::Escape> PatternReader::TakeEscape(bool any_case) {
  if (AtEnd()) return Malformed("ends with a backslash");
  const char letter = pattern_[at_++];
  switch (letter) {
    case 's':
      return Escape{WhiteSpace(), std::nullopt};
    case 'S':
      return Escape{WhiteSpace().Complement(), std::nullopt};
    case 'd':
      return Escape{*UnicodeProperty("Nd"), std::nullopt};
    case 'D':
      return Escape{UnicodeProperty("Nd")->Complement(), std::nullopt};
    case 'p':
    case 'P':
      return TakeProperty(letter == 'P', any_case);
    case 'x':
    case 'u': {
      absl::StatusOr<Escape> escape = TakeHex(letter);
      if (!escape.ok() || !any_case) return escape;
      absl::StatusOr<CodePointSet> set = Literal(*escape->single, any_case);
      if (!set.ok()) return set.status();
      return Escape{*std::move(set), escape->single};
    }
    case 'r':
      return Single('\r');
    case 'n':
      return Single('\n');
    case 't':
      return Single('\t');
    case 'f':
      return Single('\f');
    default:
      if (kPunctuation.find(letter) != kPunctuation.npos) {
        return Single(static_cast<uint8_t>(letter));
      }
      return Unsupported("this escape");
  }
}

absl::StatusOr<PatternReader::Escape> PatternReader::TakeClassMember(bool any_case, int depth) {
  if (Takes("\\")) return TakeEscape(any_case);
  if (Sees("[:")) return Unsupported("[:name:] in a class");
  if (Sees("--") || Sees("~~")) return Unsupported("-- or ~~ in a class");
  if (Takes("[")) {
    absl::StatusOr<CodePointSet> nested = TakeClass(any_case, depth + 1);
    if (!nested.ok()) return nested.status();
    return Escape{*std::move(nested), std::nullopt};
  }
  const uint32_t code_point = TakeCodePoint();
  absl::StatusOr<CodePointSet> set = Literal(code_point, any_case);
  if (!set.ok()) return set.status();
  return Escape{*std::move(set), code_point};
}

absl::StatusOr<CodePointSet> PatternReader::TakeRange(uint32_t first, bool any_case, int depth) {
  if (Sees("[")) return Malformed("a range that ends with a class");
  absl::StatusOr<Escape> last = TakeClassMember(any_case, depth);
  if (!last.ok()) return last.status();
  if (!last->single || *last->single < first) return Malformed("a range that does not ascend");
  const CodePointSet range = CodePointSet::Of(first, *last->single);
  return any_case ? range.WithOtherCase() : range;
}

// What stands between "[", "&&" and "]".
absl::StatusOr<CodePointSet> PatternReader::TakeClassOperand(bool any_case, int depth) {
  CodePointSet operand;
  bool first_member = true;
  while (!AtEnd() && !Sees("]") && !Sees("&&")) {
    // A hyphen is one of the members only where no range can be meant.
    const bool hyphen = Sees("-");
    absl::StatusOr<Escape> member = TakeClassMember(any_case, depth);
    if (!member.ok()) return member.status();
    if (hyphen && !first_member && !Sees("]")) return Unsupported("- between members of a class");
    first_member = false;
    if (Sees("-") && !Sees("-]") && !hyphen) {
      if (!member->single) return Malformed("a range that starts with a class");
      if (Sees("--")) return Unsupported("-- in a class");
      Takes("-");
      absl::StatusOr<CodePointSet> range = TakeRange(*member->single, any_case, depth);
      if (!range.ok()) return range.status();
      operand = operand.Union(*range);
    } else {
      operand = operand.Union(member->set);
    }
  }
  if (first_member) return Malformed("an empty class");
  return operand;
}

absl::StatusOr<CodePointSet> PatternReader::TakeClass(bool any_case, int depth) {
  if (depth > kPatternDepthMax) return Malformed("classes are nested too deeply");
  const bool negated = Takes("^");
  absl::StatusOr<CodePointSet> set = TakeClassOperand(any_case, depth);
  while (set.ok() && Takes("&&")) {
    absl::StatusOr<CodePointSet> right = TakeClassOperand(any_case, depth);
    if (!right.ok()) return right.status();
    set = set->Intersection(*right);
  }
  if (!set.ok()) return set.status();
  if (!Takes("]")) return Malformed("[ without ]");
  return negated ? set->Complement() : *std::move(set);
}

}  // namespace deltafill::coordinator
