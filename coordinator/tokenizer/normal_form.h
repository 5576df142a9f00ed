// Unicode's normal form C.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_NORMAL_FORM_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_NORMAL_FORM_H_

#include <string>
#include <string_view>

namespace deltafill::coordinator {

// Well-formed UTF-8 in NFC, as Hugging Face's tokenizers make it: by the tables of Unicode 9, which
// do not know marks that came later. O(n log n) time, linear memory.
std::string InNormalFormC(std::string_view text);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_NORMAL_FORM_H_
