#include "coordinator/tokenizer/tiktoken_file.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/token_bytes.h"

namespace deltafill::coordinator {
namespace {

constexpr std::string_view kMagic = "deltafill.tiktoken.1\n";
constexpr char kConfig[] = "tokenizer_config.json: ";
constexpr char kRanks[] = "tiktoken.model: ";

absl::Status Malformed(const std::string& what) { return absl::InvalidArgumentError(what); }

std::optional<uint32_t> ReadNumber(std::string_view text, uint32_t end) {
  uint32_t number = 0;
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || last != text.data() + text.size() || number >= end) {
    return std::nullopt;
  }
  return number;
}

std::string_view TakeLine(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

absl::StatusOr<RankedToken> ReadRankLine(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == line.npos) return Malformed("a line is base64, a space and a rank");
  RankedToken token;
  const std::string_view base64 = line.substr(0, space);
  if (!absl::Base64Unescape({base64.data(), base64.size()}, &token.bytes) || token.bytes.empty() ||
      token.bytes.size() > kTokenSizeMax) {
    return Malformed(absl::StrCat("not base64 of 1 to ", kTokenSizeMax, " bytes"));
  }
  const std::optional<uint32_t> rank = ReadNumber(line.substr(space + 1), kTokenIdsMax);
  if (!rank) return Malformed(absl::StrCat("the rank is no whole number below ", kTokenIdsMax));
  token.rank = *rank;
  return token;
}

absl::Status ReadRanks(std::string_view text, std::vector<RankedToken>* ranked) {
  absl::flat_hash_set<std::string> bytes_seen;
  absl::flat_hash_set<uint32_t> ranks_seen;
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = TakeLine(&text);
    if (line.empty()) continue;
    absl::StatusOr<RankedToken> token = ReadRankLine(line);
    if (!token.ok()) {
      return Malformed(
          absl::StrCat(kRanks, "line ", number, ": ", std::string(token.status().message())));
    }
    if (!bytes_seen.insert(token->bytes).second || !ranks_seen.insert(token->rank).second) {
      return Malformed(
          absl::StrCat(kRanks, "line ", number, ": this token or rank is there twice"));
    }
    ranked->push_back(*std::move(token));
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (!bytes_seen.contains(std::string(1, static_cast<char>(byte)))) {
      return Malformed(absl::StrCat(kRanks, "the byte ", byte, " has no rank"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<AddedToken> ReadAddedToken(const std::string& key, const nlohmann::json& entry) {
  const std::string where = absl::StrCat(kConfig, "added_tokens_decoder.", key);
  const std::optional<uint32_t> id = ReadNumber(key, kTokenIdsMax);
  if (!id) return Malformed(absl::StrCat(where, ": is no token id below ", kTokenIdsMax));
  if (!entry.is_object()) return Malformed(absl::StrCat(where, ": must be an object"));
  AddedToken token;
  token.id = *id;
  const auto content = entry.find("content");
  if (content == entry.end() || !content->is_string()) {
    return Malformed(absl::StrCat(where, ".content: must be a string"));
  }
  token.content = content->get<std::string>();
  for (const char* flag : {"special", "lstrip", "rstrip", "single_word", "normalized"}) {
    const auto value = entry.find(flag);
    if (value == entry.end()) continue;
    if (!value->is_boolean())
      return Malformed(absl::StrCat(where, ".", flag, ": must be a boolean"));
    if (flag == std::string_view("special")) {
      token.special = value->get<bool>();
    } else if (value->get<bool>() && flag != std::string_view("normalized")) {
      return absl::UnimplementedError(absl::StrCat(where, ".", flag, ": true is not supported"));
    }
  }
  return token;
}

absl::Status ReadConfig(std::string_view text, std::vector<AddedToken>* added) {
  if (text.empty()) return absl::OkStatus();
  const nlohmann::json config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return Malformed(absl::StrCat(kConfig, "must be a JSON object"));
  if (const auto name = config.find("tokenizer_class");
      name != config.end() &&
      !(name->is_string() && name->get_ref<const std::string&>() == "TikTokenTokenizer")) {
    return absl::UnimplementedError(absl::StrCat(
        kConfig, "tokenizer_class: only \"TikTokenTokenizer\" is there for tiktoken.model"));
  }
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder == config.end()) return absl::OkStatus();
  if (!decoder->is_object() || decoder->size() > kAddedTokensMax) {
    return Malformed(absl::StrCat(kConfig, "added_tokens_decoder: must be an object of at most ",
                                  kAddedTokensMax, " tokens"));
  }
  for (const auto& [key, entry] : decoder->items()) {
    absl::StatusOr<AddedToken> token = ReadAddedToken(key, entry);
    if (!token.ok()) return token.status();
    added->push_back(*std::move(token));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TiktokenFile> ReadTiktokenFile(std::string_view contents) {
  if (contents.substr(0, kMagic.size()) != kMagic) {
    return Malformed("tiktoken contents: do not start with deltafill.tiktoken.1");
  }
  contents.remove_prefix(kMagic.size());
  const std::optional<uint32_t> config_bytes = ReadNumber(TakeLine(&contents), UINT32_MAX);
  if (!config_bytes || *config_bytes > contents.size()) {
    return Malformed("tiktoken contents: the length of tokenizer_config.json is wrong");
  }
  TiktokenFile file;
  if (absl::Status status = ReadRanks(contents.substr(*config_bytes), &file.ranked); !status.ok()) {
    return status;
  }
  if (absl::Status status = ReadConfig(contents.substr(0, *config_bytes), &file.added);
      !status.ok()) {
    return status;
  }
  return file;
}

}  // namespace deltafill::coordinator
