// The regular expressions by which tokenizers cut text into pieces, parsed.
//
// Only what means the same in the engines that the file formats come from (Rust's regex for
// tiktoken files, Oniguruma for tokenizer.json) is accepted; the rest is refused by name, so that
// no pattern is ever read differently from how it was meant.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_SPLIT_PATTERN_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_SPLIT_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/code_point_set.h"

namespace deltafill::coordinator {

inline constexpr size_t kPatternBytesMax = 32768;
inline constexpr int kPatternDepthMax = 32;
inline constexpr uint32_t kPatternRepeatsMax = 1000;
inline constexpr uint32_t kUnlimited = UINT32_MAX;

struct PatternTerm {
  enum class Kind {
    kSet,            // one code point of sets[set]
    kSequence,       // parts one after another
    kChoice,         // the first part that matches
    kRepeat,         // parts[0], repeats_min to repeats_max times
    kFollowedBy,     // (?=parts[0])
    kNotFollowedBy,  // (?!parts[0])
    kLineEnd,        // $: at the end, or before a line feed
  };
  enum class Greed { kGreedy, kLazy, kPossessive };

  Kind kind = Kind::kSequence;
  size_t set = 0;  // of SplitPattern::sets
  std::vector<PatternTerm> parts;
  uint32_t repeats_min = 0;
  uint32_t repeats_max = 0;  // kUnlimited: no limit
  Greed greed = Greed::kGreedy;
};

struct SplitPattern {
  PatternTerm root;
  std::vector<CodePointSet> sets;
};

// INVALID_ARGUMENT for a malformed pattern, one that can match nothing, or one over the limits
// above; UNIMPLEMENTED for what is not supported. Both say where (a byte offset).
//   literals, ., | ( ) (?: ) (?i: ) (?= ) (?! ) $, ? * + {n} {n,} {n,m}, and ? * + made lazy (?)
//   or possessive (+); \s \S \d \D \p{..} \P{..} \pL \r \n \t \f \xHH \x{..} \uHHHH, escaped
//   punctuation; [..] with ranges, nested classes and &&. Under (?i: ) only what is ASCII.
absl::StatusOr<SplitPattern> ParseSplitPattern(std::string_view pattern);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_SPLIT_PATTERN_H_
