#include "coordinator/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/code_point_set.h"
#include "coordinator/tokenizer/utf8.h"

namespace deltafill::coordinator {
namespace {

// The code point that ends at text[end), and where it starts. Well-formed text; end > 0.
std::pair<uint32_t, size_t> CodePointBefore(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  size_t at = start;
  return {NextCodePoint(text, &at), start};
}

bool WordBefore(std::string_view text, size_t end) {
  return end > 0 && WordCharacters().Contains(CodePointBefore(text, end).first);
}

bool WordAt(std::string_view text, size_t at) {
  return at < text.size() && WordCharacters().Contains(NextCodePoint(text, &at));
}

size_t SpaceStartBefore(std::string_view text, size_t end) {
  while (end > 0) {
    const auto [code_point, start] = CodePointBefore(text, end);
    if (!WhiteSpace().Contains(code_point)) break;
    end = start;
  }
  return end;
}

size_t SpaceEndAfter(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!WhiteSpace().Contains(NextCodePoint(text, &next))) break;
    at = next;
  }
  return at;
}

}  // namespace

absl::Status AddedTokens::Put(AddedToken token) {
  if (token.content.empty() || token.content.size() > kAddedTokenBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "content has ", token.content.size(), " bytes; 1 to ", kAddedTokenBytesMax, " are taken"));
  }
  if (tokens_.size() == kAddedTokensMax) {
    return absl::InvalidArgumentError(absl::StrCat("more than ", kAddedTokensMax));
  }
  uint32_t state = 0;
  for (const char byte : token.content) {
    const auto fresh = static_cast<uint32_t>(token_at_.size());
    const auto [edge, is_new] = edges_.try_emplace(Edge(state, byte), fresh);
    if (is_new) token_at_.push_back(-1);
    state = edge->second;
  }
  if (token_at_[state] >= 0) {
    return absl::InvalidArgumentError(absl::StrCat("content \"", token.content, "\" twice"));
  }
  token_at_[state] = static_cast<int32_t>(tokens_.size());
  first_bytes_[static_cast<uint8_t>(token.content.front())] = true;
  any_plain_ = any_plain_ || !token.special;
  tokens_.push_back(std::move(token));
  return absl::OkStatus();
}

const AddedToken* AddedTokens::LongestAt(std::string_view text, size_t at) const {
  const AddedToken* longest = nullptr;
  uint32_t state = 0;
  for (; at < text.size(); ++at) {
    const auto edge = edges_.find(Edge(state, text[at]));
    if (edge == edges_.end()) break;
    state = edge->second;
    if (token_at_[state] >= 0) longest = &tokens_[static_cast<size_t>(token_at_[state])];
  }
  return longest;
}

std::vector<AddedTokens::Part> AddedTokens::Cut(std::string_view text, bool allow_special) const {
  std::vector<Part> parts;
  size_t done = 0;  // what comes before is in a part
  const bool any = any_plain_ || (allow_special && !tokens_.empty());
  for (size_t at = 0; any && at < text.size();) {
    const AddedToken* const token =
        first_bytes_[static_cast<uint8_t>(text[at])] ? LongestAt(text, at) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t start = at;
    size_t stop = at + token->content.size();
    at = stop;
    if (token->special && !allow_special) continue;
    if (token->single_word && (WordBefore(text, start) || WordAt(text, stop))) continue;
    if (token->strip_left) start = std::max(SpaceStartBefore(text, start), done);
    if (token->strip_right) stop = SpaceEndAfter(text, stop);
    if (start > done) parts.push_back({text.substr(done, start - done), nullptr});
    parts.push_back({text.substr(start, stop - start), token});
    done = stop;
  }
  if (done < text.size()) parts.push_back({text.substr(done), nullptr});
  return parts;
}

}  // namespace deltafill::coordinator
