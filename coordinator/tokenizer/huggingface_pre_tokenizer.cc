// pre_tokenizer of tokenizer.json: how text is cut into pieces.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/tokenizer/huggingface_json.h"
#include "coordinator/tokenizer/utf8.h"

namespace deltafill::coordinator {
namespace {

using Json = nlohmann::json;

constexpr size_t kPreTokenizersMax = 16;

// What ByteLevel cuts by: GPT-2's contractions, words, numbers, the rest, white space.
constexpr char kByteLevelPattern[] =
    R"('(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string LiteralPattern(const std::string& text) {
  std::string pattern;
  for (const uint32_t code_point : CodePointsOf(text)) {
    absl::StrAppendFormat(&pattern, "\\x{%x}", code_point);
  }
  return pattern;
}

absl::Status ReadPattern(const Json& json, const std::string& key, std::string* pattern) {
  const Json& regex = Member(json, "Regex");
  const Json& text = Member(json, "String");
  if (!json.is_object() || json.size() != 1 || regex.is_string() == text.is_string()) {
    return MalformedKey(key, "must be {\"Regex\": text} or {\"String\": text}");
  }
  *pattern = regex.is_string() ? regex.get<std::string>() : LiteralPattern(text.get<std::string>());
  return absl::OkStatus();
}

absl::Status ReadSplit(const Json& json, const std::string& key, SplitRule* rule) {
  absl::Status status = CheckObject(json, key, {"type", "pattern", "behavior", "invert"});
  if (!status.ok()) return status;
  if (status = ReadPattern(Member(json, "pattern"), key + ".pattern", &rule->pattern);
      !status.ok()) {
    return status;
  }
  bool invert = false;
  if (status = ReadFlag(json, key, "invert", &invert); !status.ok()) return status;
  const Json& behavior = Member(json, "behavior");
  if (IsText(behavior, "Removed")) {
    (invert ? rule->keep_rest : rule->keep_matches) = false;
  } else if (!IsText(behavior, "Isolated")) {
    return UnsupportedKey(key + ".behavior",
                          behavior.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return absl::OkStatus();
}

absl::Status ReadDigits(const Json& json, const std::string& key, SplitRule* rule) {
  absl::Status status = CheckObject(json, key, {"type", "individual_digits"});
  if (!status.ok()) return status;
  bool individual = false;
  if (status = ReadFlag(json, key, "individual_digits", &individual); !status.ok()) return status;
  rule->pattern = individual ? "\\p{N}" : "\\p{N}+";
  return absl::OkStatus();
}

absl::Status ReadByteLevel(const Json& json, const std::string& key, HuggingFaceFile* file) {
  absl::Status status =
      CheckObject(json, key, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (!status.ok()) return status;
  bool use_regex = true;
  if (status = ReadFlag(json, key, "use_regex", &use_regex); !status.ok()) return status;
  file->prefix_space = true;
  if (status = ReadFlag(json, key, "add_prefix_space", &file->prefix_space); !status.ok()) {
    return status;
  }
  if (file->prefix_space && !file->split_rules.empty()) {
    return UnsupportedKey(key + ".add_prefix_space", "true after another pre-tokenizer");
  }
  if (use_regex) file->split_rules.push_back({.pattern = kByteLevelPattern});
  return absl::OkStatus();
}

// *bytes: a ByteLevel was read, after which text is no text any more.
absl::Status ReadOne(const Json& json, const std::string& key, HuggingFaceFile* file, bool* bytes) {
  const std::string type = TypeOf(json);
  if (*bytes) return UnsupportedKey(key, "a pre-tokenizer after ByteLevel");
  if (type == "ByteLevel") {
    *bytes = true;
    return ReadByteLevel(json, key, file);
  }
  SplitRule rule;
  absl::Status status;
  if (type == "Split") {
    status = ReadSplit(json, key, &rule);
  } else if (type == "Digits") {
    status = ReadDigits(json, key, &rule);
  } else {
    return UnsupportedKey(key + ".type", absl::StrCat("\"", type, "\""));
  }
  if (status.ok()) {
    // Compiled once by itself, so that a fault names its key.
    const auto compiled = PieceSplitter::Create({rule});
    status = compiled.status();
    if (!status.ok()) {
      status = absl::Status(status.code(), absl::StrCat("tokenizer.json: ", key, ": ",
                                                        std::string(status.message())));
    }
  }
  if (status.ok()) file->split_rules.push_back(std::move(rule));
  return status;
}

}  // namespace

absl::Status ReadPreTokenizer(const Json& json, HuggingFaceFile* file) {
  const std::string key = "pre_tokenizer";
  bool bytes = false;
  absl::Status status;
  if (TypeOf(json) != "Sequence") {
    status = ReadOne(json, key, file, &bytes);
  } else {
    status = CheckObject(json, key, {"type", "pretokenizers"});
    if (!status.ok()) return status;
    const Json& inner = Member(json, "pretokenizers");
    if (!inner.is_array() || inner.size() > kPreTokenizersMax) {
      return MalformedKey(key + ".pretokenizers",
                          absl::StrCat("must be a list of at most ", kPreTokenizersMax));
    }
    for (size_t i = 0; i < inner.size() && status.ok(); ++i) {
      status = ReadOne(inner[i], absl::StrCat(key, ".pretokenizers[", i, "]"), file, &bytes);
    }
  }
  if (status.ok() && !bytes) return UnsupportedKey(key, "what has no ByteLevel at its end");
  return status;
}

}  // namespace deltafill::coordinator
