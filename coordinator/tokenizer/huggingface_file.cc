#include "coordinator/tokenizer/huggingface_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/huggingface_json.h"
#include "coordinator/tokenizer/token_bytes.h"

namespace deltafill::coordinator {
namespace {

using Json = nlohmann::json;

absl::Status ReadNormalizer(const Json& json, const std::string& key, HuggingFaceFile* file) {
  if (json.is_null()) return absl::OkStatus();
  const std::string type = TypeOf(json);
  if (type == "NFC") {
    file->normal_form_c = true;
    return CheckObject(json, key, {"type"});
  }
  if (type != "Sequence") {
    return UnsupportedKey(key + ".type", absl::StrCat("\"", type, "\""));
  }
  absl::Status status = CheckObject(json, key, {"type", "normalizers"});
  if (!status.ok()) return status;
  const Json& normalizers = Member(json, "normalizers");
  if (!normalizers.is_array()) return MalformedKey(key + ".normalizers", "must be a list");
  for (size_t i = 0; i < normalizers.size() && status.ok(); ++i) {
    const std::string inner = absl::StrCat(key, ".normalizers[", i, "]");
    if (TypeOf(normalizers[i]) == "Sequence") {
      return UnsupportedKey(inner + ".type", "\"Sequence\" inside \"Sequence\"");
    }
    status = ReadNormalizer(normalizers[i], inner, file);
  }
  return status;
}

absl::Status ReadAddedToken(const Json& json, const std::string& key, AddedToken* token,
                            bool* normalized) {
  absl::Status status = CheckObject(
      json, key, {"id", "content", "special", "single_word", "lstrip", "rstrip", "normalized"});
  if (!status.ok()) return status;
  const Json& id = Member(json, "id");
  if (!id.is_number_unsigned() || id.get<uint64_t>() >= kTokenIdsMax) {
    return MalformedKey(key + ".id", absl::StrCat("must be a whole number below ", kTokenIdsMax));
  }
  token->id = id.get<uint32_t>();
  const Json& content = Member(json, "content");
  if (!content.is_string() || content.get_ref<const std::string&>().empty()) {
    return MalformedKey(key + ".content", "must be text");
  }
  token->content = content.get<std::string>();
  *normalized = true;
  for (const auto& [member, value] : {std::pair<const char*, bool*>{"special", &token->special},
                                      {"single_word", &token->single_word},
                                      {"lstrip", &token->strip_left},
                                      {"rstrip", &token->strip_right},
                                      {"normalized", normalized}}) {
    if (status = ReadFlag(json, key, member, value); !status.ok()) return status;
  }
  if (Member(json, "normalized").is_null()) *normalized = !token->special;
  return absl::OkStatus();
}

// The tokenizers library does not take an added token's id from the file: it is the vocabulary's
// where the content is in it, and else the next one. A file that says otherwise would mean other
// tokens there than here.
class AddedIds {
 public:
  explicit AddedIds(const HuggingFaceFile& file)
      : next_(static_cast<uint32_t>(file.vocabulary.size())) {
    for (const VocabularyEntry& entry : file.vocabulary) vocabulary_[entry.text] = entry.id;
  }

  absl::Status Check(const AddedToken& token, const std::string& key) {
    const auto known = vocabulary_.find(token.content);
    const uint32_t expected = known != vocabulary_.end() ? known->second : next_;
    if (token.id != expected) {
      return MalformedKey(key + ".id",
                          absl::StrCat("is ", token.id, "; readers of this file give \"",
                                       token.content, "\" the id ", expected));
    }
    if (known == vocabulary_.end()) ++next_;
    return absl::OkStatus();
  }

 private:
  absl::flat_hash_map<std::string, uint32_t> vocabulary_;
  uint32_t next_;
};

absl::Status ReadAddedTokens(const Json& json, HuggingFaceFile* file) {
  if (json.is_null()) return absl::OkStatus();
  if (!json.is_array() || json.size() > kAddedTokensMax) {
    return MalformedKey("added_tokens",
                        absl::StrCat("must be a list of at most ", kAddedTokensMax));
  }
  AddedIds ids(*file);
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string key = absl::StrCat("added_tokens[", i, "]");
    AddedToken token;
    bool normalized = false;
    absl::Status status = ReadAddedToken(json[i], key, &token, &normalized);
    if (status.ok()) status = ids.Check(token, key);
    if (!status.ok()) return status;
    (normalized ? file->added : file->raw_added).push_back(std::move(token));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MalformedKey(const std::string& key, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", key, ": ", what));
}

absl::Status UnsupportedKey(const std::string& key, const std::string& what) {
  return absl::UnimplementedError(
      absl::StrCat("tokenizer.json: ", key, ": ", what, " is not supported"));
}

absl::Status CheckObject(const Json& json, const std::string& key,
                         std::initializer_list<const char*> known) {
  if (!json.is_object()) return MalformedKey(key, "must be an object");
  for (const auto& [member, value] : json.items()) {
    if (std::find(known.begin(), known.end(), member) == known.end()) {
      return UnsupportedKey(key.empty() ? member : absl::StrCat(key, ".", member), "this key");
    }
  }
  return absl::OkStatus();
}

const Json& Member(const Json& object, const char* key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

absl::Status ReadFlag(const Json& object, const std::string& key, const char* member, bool* value) {
  const Json& flag = Member(object, member);
  if (flag.is_null()) return absl::OkStatus();
  if (!flag.is_boolean()) return MalformedKey(absl::StrCat(key, ".", member), "must be a boolean");
  *value = flag.get<bool>();
  return absl::OkStatus();
}

bool IsText(const Json& json, const char* text) {
  return json.is_string() && json.get_ref<const std::string&>() == text;
}

std::string TypeOf(const Json& object) {
  const Json& type = Member(object, "type");
  return type.is_string() ? type.get<std::string>() : std::string();
}

absl::StatusOr<HuggingFaceFile> ReadHuggingFaceFile(std::string_view contents) {
  const Json json = Json::parse(contents, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("tokenizer.json: must be a JSON object");
  absl::Status status =
      CheckObject(json, "",
                  {"version", "truncation", "padding", "added_tokens", "normalizer",
                   "pre_tokenizer", "post_processor", "decoder", "model"});
  for (const char* cut : {"truncation", "padding"}) {
    if (status.ok() && !Member(json, cut).is_null()) status = UnsupportedKey(cut, "not null");
  }
  const Json& decoder = Member(json, "decoder");
  if (status.ok() && !decoder.is_null() && TypeOf(decoder) != "ByteLevel") {
    status = UnsupportedKey("decoder.type", absl::StrCat("\"", TypeOf(decoder), "\""));
  }
  HuggingFaceFile file;
  if (status.ok()) status = ReadNormalizer(Member(json, "normalizer"), "normalizer", &file);
  if (status.ok()) status = ReadPreTokenizer(Member(json, "pre_tokenizer"), &file);
  if (status.ok()) status = ReadBpe(Member(json, "model"), &file);
  if (status.ok()) status = ReadAddedTokens(Member(json, "added_tokens"), &file);
  if (!status.ok()) return status;
  return file;
}

}  // namespace deltafill::coordinator
