#include "coordinator/tokenizer/class_pattern.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace deltafill::coordinator {
namespace {

using Kind = PatternTerm::Kind;

class Writer {
 public:
  Writer(const CharacterClasses& classes, size_t first_set)
      : classes_(classes), first_set_(first_set) {}

  std::string Of(const PatternTerm& term) const {
    switch (term.kind) {
      case Kind::kSet:
        return Set(term.set);
      case Kind::kSequence: {
        std::string sequence;
        for (const PatternTerm& part : term.parts) sequence += Of(part);
        return sequence;
      }
      case Kind::kChoice: {
        std::string choice;
        for (const PatternTerm& part : term.parts) {
          absl::StrAppend(&choice, choice.empty() ? "(?:" : "|", Of(part));
        }
        return choice + ")";
      }
      case Kind::kRepeat:
        return Repeat(term);
      case Kind::kFollowedBy:
        return absl::StrCat("(?=", Of(term.parts.front()), ")");
      case Kind::kNotFollowedBy:
        return absl::StrCat("(?!", Of(term.parts.front()), ")");
      case Kind::kLineEnd:
        return absl::StrCat("(?:\\z|(?=", Set(term.set), "))");
    }
    return "";
  }

 private:
  std::string Set(size_t set) const {
    const std::vector<uint8_t>& classes = classes_.ClassesOfSet(first_set_ + set);
    if (classes.empty()) return "(?!)";  // no code point is in it
    std::string text = "[";
    for (size_t i = 0; i < classes.size();) {
      size_t last = i;
      while (last + 1 < classes.size() && classes[last + 1] == classes[last] + 1) ++last;
      absl::StrAppendFormat(&text, "\\x%02x", classes[i]);
      if (last > i) absl::StrAppendFormat(&text, "-\\x%02x", classes[last]);
      i = last + 1;
    }
    return text + "]";
  }

  std::string Repeat(const PatternTerm& term) const {
    const PatternTerm& part = term.parts.front();
    std::string text = part.kind == Kind::kSet ? Of(part) : absl::StrCat("(?:", Of(part), ")");
    if (term.repeats_min == 0 && term.repeats_max == 1) {
      text += "?";
    } else if (term.repeats_min <= 1 && term.repeats_max == kUnlimited) {
      text += term.repeats_min == 0 ? "*" : "+";
    } else if (term.repeats_max == kUnlimited) {
      absl::StrAppendFormat(&text, "{%u,}", term.repeats_min);
    } else {
      absl::StrAppendFormat(&text, "{%u,%u}", term.repeats_min, term.repeats_max);
    }
    if (term.greed == PatternTerm::Greed::kLazy) text += "?";
    if (term.greed == PatternTerm::Greed::kPossessive) text += "+";
    return text;
  }

  const CharacterClasses& classes_;
  const size_t first_set_;
};

// The set that the pattern starts with one or more of, and nothing else could start it.
const PatternTerm* LeadingRun(const PatternTerm& root) {
  if (root.kind != Kind::kSequence || root.parts.size() < 2) return nullptr;
  const PatternTerm& first = root.parts.front();
  const bool is_run =
      first.kind == Kind::kRepeat && first.repeats_min == 1 && first.repeats_max == kUnlimited &&
      first.greed != PatternTerm::Greed::kPossessive && first.parts.front().kind == Kind::kSet;
  return is_run ? &first.parts.front() : nullptr;
}

}  // namespace

std::string ClassPattern(const SplitPattern& pattern, const CharacterClasses& classes,
                         size_t first_set) {
  const Writer writer(classes, first_set);
  const std::string text = writer.Of(pattern.root);
  // A pattern like \s+$: where it fails at the start of a run it fails at every later place of that
  // run too, because the ends it can reach from there are fewer. Without saying so a long run that
  // never matches would be walked from each of its places.
  const PatternTerm* const run = LeadingRun(pattern.root);
  if (run == nullptr) return text;
  return absl::StrCat("(?:", text, "|", writer.Of(*run), "++(*SKIP)(*FAIL))");
}

}  // namespace deltafill::coordinator
