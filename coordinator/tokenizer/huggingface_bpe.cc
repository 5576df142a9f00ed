// model of tokenizer.json: vocabulary and merges.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/huggingface_json.h"
#include "coordinator/tokenizer/token_bytes.h"
#include "coordinator/tokenizer/utf8.h"

namespace deltafill::coordinator {
namespace {

using Json = nlohmann::json;
using IdOfText = absl::flat_hash_map<std::string, uint32_t>;

constexpr uint32_t kAlphabetEnd = 256 + 68;  // 68 bytes have characters from U+0100 on

// Bytes that stand for themselves in the byte-level alphabet: what is printed in Latin-1.
bool StandsForItself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// By code point: its byte, or -1. The other bytes, in ascending order, have the code points from
// U+0100 on.
const std::vector<int>& ByteOfCharacter() {
  static const std::vector<int> table = [] {
    std::vector<int> bytes(kAlphabetEnd, -1);
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      bytes[StandsForItself(byte) ? byte : next++] = static_cast<int>(byte);
    }
    return bytes;
  }();
  return table;
}

absl::Status CheckModelOptions(const Json& model) {
  const std::string key = "model";
  absl::Status status = CheckObject(
      model, key,
      {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
       "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (!status.ok()) return status;
  if (const std::string type = TypeOf(model); type != "BPE") {
    return UnsupportedKey("model.type", absl::StrCat("\"", type, "\""));
  }
  if (const Json& dropout = Member(model, "dropout"); !dropout.is_null() && dropout != 0) {
    return UnsupportedKey("model.dropout", "not null");
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& text = Member(model, affix);
    if (!text.is_null() && !IsText(text, "")) return UnsupportedKey(key + "." + affix, "not null");
  }
  bool byte_fallback = false;
  status = ReadFlag(model, key, "byte_fallback", &byte_fallback);
  if (status.ok() && byte_fallback) status = UnsupportedKey("model.byte_fallback", "true");
  return status;
}

absl::Status ReadVocabulary(const Json& vocab, std::vector<VocabularyEntry>* vocabulary,
                            IdOfText* id_of_text) {
  if (!vocab.is_object() || vocab.empty()) return MalformedKey("model.vocab", "must be an object");
  absl::flat_hash_set<uint32_t> ids;
  vocabulary->reserve(vocab.size());
  id_of_text->reserve(vocab.size());
  for (const auto& [text, id] : vocab.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kTokenIdsMax) {
      return MalformedKey(absl::StrCat("model.vocab[\"", text, "\"]"),
                          absl::StrCat("must be a whole number below ", kTokenIdsMax));
    }
    if (!ids.insert(id.get<uint32_t>()).second) {
      return MalformedKey(absl::StrCat("model.vocab[\"", text, "\"]"),
                          absl::StrCat("the id ", id.get<uint32_t>(), " is there twice"));
    }
    vocabulary->push_back({text, id.get<uint32_t>()});
    id_of_text->emplace(text, id.get<uint32_t>());
  }
  return absl::OkStatus();
}

// "a b" or ["a", "b"].
bool ReadMergeTexts(const Json& merge, std::string* left, std::string* right) {
  if (merge.is_array()) {
    if (merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) return false;
    *left = merge[0].get<std::string>();
    *right = merge[1].get<std::string>();
    return true;
  }
  if (!merge.is_string()) return false;
  const std::string& both = merge.get_ref<const std::string&>();
  const size_t space = both.find(' ');
  if (space == both.npos || both.find(' ', space + 1) != both.npos) return false;
  *left = both.substr(0, space);
  *right = both.substr(space + 1);
  return true;
}

absl::Status ReadMerges(const Json& merges, const IdOfText& id_of_text,
                        std::vector<VocabularyMerge>* out) {
  if (!merges.is_array()) return MalformedKey("model.merges", "must be a list");
  out->reserve(merges.size());
  std::string left, right;
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string key = absl::StrCat("model.merges[", i, "]");
    if (!ReadMergeTexts(merges[i], &left, &right)) {
      return MalformedKey(key, "must be \"a b\" or [\"a\", \"b\"]");
    }
    const auto left_id = id_of_text.find(left);
    const auto right_id = id_of_text.find(right);
    const auto merged_id = id_of_text.find(left + right);
    if (left_id == id_of_text.end() || right_id == id_of_text.end() ||
        merged_id == id_of_text.end()) {
      return MalformedKey(key, "a part of it, or both together, is not in model.vocab");
    }
    out->push_back({left_id->second, right_id->second, merged_id->second});
  }
  return absl::OkStatus();
}

}  // namespace

bool BytesOfEntry(std::string_view text, std::string* bytes) {
  const std::vector<int>& byte_of = ByteOfCharacter();
  bytes->clear();
  for (size_t at = 0; at < text.size();) {
    const uint32_t code_point = NextCodePoint(text, &at);
    if (code_point >= byte_of.size() || byte_of[code_point] < 0) return false;
    bytes->push_back(static_cast<char>(byte_of[code_point]));
  }
  return true;
}

absl::Status ReadBpe(const Json& model, HuggingFaceFile* file) {
  absl::Status status = CheckModelOptions(model);
  if (status.ok()) status = ReadFlag(model, "model", "ignore_merges", &file->ignore_merges);
  if (!status.ok()) return status;
  IdOfText id_of_text;
  status = ReadVocabulary(Member(model, "vocab"), &file->vocabulary, &id_of_text);
  if (status.ok()) status = ReadMerges(Member(model, "merges"), id_of_text, &file->merges);
  return status;
}

}  // namespace deltafill::coordinator
