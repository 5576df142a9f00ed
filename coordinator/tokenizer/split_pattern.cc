#include "coordinator/tokenizer/split_pattern.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/pattern_reader.h"
#include "coordinator/tokenizer/utf8.h"

namespace deltafill::coordinator {
namespace {

using Kind = PatternTerm::Kind;

class Parser {
 public:
  explicit Parser(std::string_view pattern) : reader_(pattern) {}

  absl::StatusOr<SplitPattern> Parse() {
    absl::StatusOr<PatternTerm> root = Choice(/*any_case=*/false, 0);
    if (!root.ok()) return root.status();
    if (!reader_.AtEnd()) return reader_.Malformed(") without (");
    return SplitPattern{*std::move(root), std::move(sets_)};
  }

 private:
  absl::StatusOr<PatternTerm> Choice(bool any_case, int depth) {
    if (depth > kPatternDepthMax) return reader_.Malformed("groups are nested too deeply");
    PatternTerm choice;
    choice.kind = Kind::kChoice;
    do {
      absl::StatusOr<PatternTerm> sequence = Sequence(any_case, depth);
      if (!sequence.ok()) return sequence.status();
      choice.parts.push_back(*std::move(sequence));
    } while (reader_.Takes("|"));
    if (choice.parts.size() > 1) return choice;
    PatternTerm only = std::move(choice.parts.front());
    return only;
  }

  absl::StatusOr<PatternTerm> Sequence(bool any_case, int depth) {
    PatternTerm sequence;
    while (!reader_.AtEnd() && !reader_.Sees("|") && !reader_.Sees(")")) {
      absl::StatusOr<PatternTerm> item = Item(any_case, depth);
      if (!item.ok()) return item.status();
      absl::StatusOr<PatternTerm> repeated = Repeated(*std::move(item));
      if (!repeated.ok()) return repeated.status();
      sequence.parts.push_back(*std::move(repeated));
    }
    return sequence;
  }

  absl::StatusOr<PatternTerm> Item(bool any_case, int depth) {
    if (reader_.Takes("(")) return Group(any_case, depth);
    if (reader_.Takes("[")) return SetTerm(reader_.TakeClass(any_case));
    if (reader_.Takes(".")) return SetTerm(CodePointSet::Of('\n', '\n').Complement());
    if (reader_.Takes("$")) {
      PatternTerm end;
      end.kind = Kind::kLineEnd;
      end.set = AddSet(CodePointSet::Of('\n', '\n'));
      return end;
    }
    if (reader_.Takes("\\")) {
      absl::StatusOr<PatternReader::Escape> escape = reader_.TakeEscape(any_case);
      if (!escape.ok()) return escape.status();
      return SetTerm(std::move(escape->set));
    }
    for (const char* operation : {"?", "*", "+", "{", "}", "]"}) {
      if (reader_.Sees(operation)) return reader_.Malformed("an unescaped ? * + { } or ]");
    }
    if (reader_.Sees("^")) return reader_.Unsupported("^");
    return SetTerm(reader_.Literal(reader_.TakeCodePoint(), any_case));
  }

  absl::StatusOr<PatternTerm> Group(bool any_case, int depth) {
    PatternTerm group;
    if (reader_.Takes("?=")) {
      group.kind = Kind::kFollowedBy;
    } else if (reader_.Takes("?!")) {
      group.kind = Kind::kNotFollowedBy;
    } else if (reader_.Takes("?i:")) {
      any_case = true;
    } else if (!reader_.Takes("?:") && (reader_.Sees("?") || reader_.Sees("*"))) {
      return reader_.Unsupported("this kind of group");
    }
    absl::StatusOr<PatternTerm> inside = Choice(any_case, depth + 1);
    if (!inside.ok()) return inside.status();
    if (!reader_.Takes(")")) return reader_.Malformed("( without )");
    if (group.kind == Kind::kSequence) return inside;
    group.parts.push_back(*std::move(inside));
    return group;
  }

  absl::StatusOr<PatternTerm> Repeated(PatternTerm item) {
    PatternTerm repeat;
    repeat.kind = Kind::kRepeat;
    repeat.repeats_max = kUnlimited;
    const bool braces = reader_.Takes("{");
    if (braces) {
      if (absl::Status status = Counts(&repeat); !status.ok()) return status;
    } else if (reader_.Takes("?")) {
      repeat.repeats_max = 1;
    } else if (reader_.Takes("+")) {
      repeat.repeats_min = 1;
    } else if (!reader_.Takes("*")) {
      return item;
    }
    if (reader_.Takes("?")) {
      repeat.greed = PatternTerm::Greed::kLazy;
    } else if (reader_.Takes("+")) {
      repeat.greed = PatternTerm::Greed::kPossessive;
    }
    // The engines differ in what follows braces, and in a repeat of a repeat.
    const bool again = reader_.Sees("?") || reader_.Sees("*") || reader_.Sees("+") ||
                       reader_.Sees("{") || (braces && repeat.greed != PatternTerm::Greed::kGreedy);
    if (again) return reader_.Unsupported("a repeated repeat");
    if (item.kind == Kind::kFollowedBy || item.kind == Kind::kNotFollowedBy ||
        item.kind == Kind::kLineEnd) {
      return reader_.Unsupported("a repeated assertion");
    }
    repeat.parts.push_back(std::move(item));
    return repeat;
  }

  absl::Status Counts(PatternTerm* repeat) {
    const std::optional<uint32_t> least = reader_.TakeNumber();
    if (!least) return reader_.Malformed("{ without a number");
    repeat->repeats_min = repeat->repeats_max = *least;
    if (reader_.Takes(",")) repeat->repeats_max = reader_.TakeNumber().value_or(kUnlimited);
    if (!reader_.Takes("}")) return reader_.Malformed("{ without }");
    const bool within = *least <= kPatternRepeatsMax && (repeat->repeats_max == kUnlimited ||
                                                         repeat->repeats_max <= kPatternRepeatsMax);
    if (!within || repeat->repeats_max < *least || repeat->repeats_max == 0) {
      return reader_.Malformed(
          absl::StrCat("repeats must ascend within 0 to ", kPatternRepeatsMax));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<PatternTerm> SetTerm(absl::StatusOr<CodePointSet> set) {
    if (!set.ok()) return set.status();
    PatternTerm term;
    term.kind = Kind::kSet;
    term.set = AddSet(*std::move(set));
    return term;
  }

  size_t AddSet(CodePointSet set) {
    const auto found = std::find(sets_.begin(), sets_.end(), set);
    if (found != sets_.end()) return static_cast<size_t>(found - sets_.begin());
    sets_.push_back(std::move(set));
    return sets_.size() - 1;
  }

  PatternReader reader_;
  std::vector<CodePointSet> sets_;
};

bool CanMatchNothing(const PatternTerm& term) {
  switch (term.kind) {
    case Kind::kSet:
      return false;
    case Kind::kSequence:
      return std::all_of(term.parts.begin(), term.parts.end(), CanMatchNothing);
    case Kind::kChoice:
      return std::any_of(term.parts.begin(), term.parts.end(), CanMatchNothing);
    case Kind::kRepeat:
      return term.repeats_min == 0 || CanMatchNothing(term.parts.front());
    case Kind::kFollowedBy:
    case Kind::kNotFollowedBy:
    case Kind::kLineEnd:
      return true;
  }
  return true;
}

}  // namespace

absl::StatusOr<SplitPattern> ParseSplitPattern(std::string_view pattern) {
  if (pattern.empty() || pattern.size() > kPatternBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern: ", pattern.size(), " bytes; 1 to ", kPatternBytesMax, " are taken"));
  }
  if (const Utf8Run run = NextUtf8Run(pattern, 0); !run.well_formed || run.bytes != pattern) {
    return absl::InvalidArgumentError("pattern: is not UTF-8");
  }
  absl::StatusOr<SplitPattern> parsed = Parser(pattern).Parse();
  if (parsed.ok() && CanMatchNothing(parsed->root)) {
    return absl::InvalidArgumentError("pattern: can match nothing");
  }
  return parsed;
}

}  // namespace deltafill::coordinator
