// Hugging Face's tokenizer.json, as far as it describes byte-level byte-pair encoding.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_HUGGINGFACE_FILE_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_HUGGINGFACE_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/added_tokens.h"
#include "coordinator/tokenizer/piece_splitter.h"

namespace deltafill::coordinator {

struct VocabularyEntry {
  std::string text;  // each character stands for a byte, in the byte-level alphabet
  uint32_t id = 0;
};

struct VocabularyMerge {
  uint32_t left = 0;
  uint32_t right = 0;
  uint32_t merged = 0;
};

struct HuggingFaceFile {
  std::vector<VocabularyEntry> vocabulary;  // no text and no id twice
  std::vector<VocabularyMerge> merges;      // in order of rank
  bool ignore_merges = false;               // a piece that is in the vocabulary is not merged anew

  bool normal_form_c = false;         // the text is put into NFC
  std::vector<AddedToken> raw_added;  // looked for before the text is normalised
  std::vector<AddedToken> added;      // and after
  bool prefix_space = false;          // text that does not start with a space gets one
  std::vector<SplitRule> split_rules;
};

// INVALID_ARGUMENT or UNIMPLEMENTED naming the key. A key that is not known is refused: what is
// accepted is read as the tokenizers library reads it. post_processor and decoder do not matter to
// the ids of plain text.
absl::StatusOr<HuggingFaceFile> ReadHuggingFaceFile(std::string_view contents);

// The bytes of a vocabulary entry; false if a character is outside the byte-level alphabet.
bool BytesOfEntry(std::string_view text, std::string* bytes);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_HUGGINGFACE_FILE_H_
