// Tokens that are found in the text as they stand, before it is cut into pieces.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_ADDED_TOKENS_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_ADDED_TOKENS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace deltafill::coordinator {

inline constexpr size_t kAddedTokensMax = 65536;
inline constexpr size_t kAddedTokenBytesMax = 1024;

struct AddedToken {
  std::string content;
  uint32_t id = 0;
  bool special = false;
  bool single_word = false;  // only where no word character stands beside it
  bool strip_left = false;   // takes the white space before it
  bool strip_right = false;  // and after it
};

// Immutable and thread-safe once filled.
class AddedTokens {
 public:
  // A stretch of text between tokens, or a token.
  struct Part {
    std::string_view text;  // of a token: what it stands for in the text
    const AddedToken* token = nullptr;
  };

  // The content is UTF-8. INVALID_ARGUMENT if it is empty, over the limit or there already, or
  // there are more than kAddedTokensMax.
  absl::Status Put(AddedToken token);

  // Cuts the text at its tokens: leftmost first, of those the longest, none inside another. Special
  // ones are found and then left as text unless allow_special. In the order of the text; no part is
  // empty text. The text is well-formed UTF-8.
  std::vector<Part> Cut(std::string_view text, bool allow_special) const;

 private:
  // The longest token that starts at text[at]; null if none.
  const AddedToken* LongestAt(std::string_view text, size_t at) const;

  static uint64_t Edge(uint32_t state, char byte) {
    return uint64_t{state} << 8 | static_cast<uint8_t>(byte);
  }

  std::vector<AddedToken> tokens_;
  bool any_plain_ = false;  // one is not special
  std::array<bool, 256> first_bytes_{};
  // A trie: state 0 is its root.
  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> token_at_{-1};  // by state: index of the token that ends there, or -1
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_ADDED_TOKENS_H_
