// A parsed pattern in PCRE2's syntax, over character classes.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_CLASS_PATTERN_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_CLASS_PATTERN_H_

#include <cstddef>
#include <string>

#include "coordinator/tokenizer/character_classes.h"
#include "coordinator/tokenizer/split_pattern.h"

namespace deltafill::coordinator {

// The pattern's set i is set first_set + i of the classes. Subjects are bytes: one class a code
// point (PCRE2 without UTF). The matches are those of the pattern over the code points.
std::string ClassPattern(const SplitPattern& pattern, const CharacterClasses& classes,
                         size_t first_set);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_CLASS_PATTERN_H_
