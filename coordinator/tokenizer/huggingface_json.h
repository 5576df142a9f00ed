// Reading parts of tokenizer.json: each returns INVALID_ARGUMENT or UNIMPLEMENTED naming the key.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_HUGGINGFACE_JSON_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_HUGGINGFACE_JSON_H_

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "coordinator/tokenizer/huggingface_file.h"

namespace deltafill::coordinator {

absl::Status MalformedKey(const std::string& key, const std::string& what);
absl::Status UnsupportedKey(const std::string& key, const std::string& what);

// Refuses what is no object, and a key in it that is not among the known ones.
absl::Status CheckObject(const nlohmann::json& json, const std::string& key,
                         std::initializer_list<const char*> known);

// A member; null if it is not there.
const nlohmann::json& Member(const nlohmann::json& object, const char* key);

// A boolean member that may be missing.
absl::Status ReadFlag(const nlohmann::json& object, const std::string& key, const char* member,
                      bool* value);

bool IsText(const nlohmann::json& json, const char* text);

// The string member "type"; "" if there is none.
std::string TypeOf(const nlohmann::json& object);

// Into *file: vocabulary, merges, ignore_merges.
absl::Status ReadBpe(const nlohmann::json& model, HuggingFaceFile* file);
// Into *file: split_rules, prefix_space.
absl::Status ReadPreTokenizer(const nlohmann::json& json, HuggingFaceFile* file);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_HUGGINGFACE_JSON_H_
