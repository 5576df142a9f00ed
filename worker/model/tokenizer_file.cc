#include "worker/model/tokenizer_file.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "worker/model/mapped_file.h"
#include "worker/model/model_directory.h"
#include "worker/model/status_steps.h"
#include "worker/model/strict_json.h"

namespace deltafill::worker {
namespace {

// Nothing if there is no such file.
absl::StatusOr<std::optional<std::string>> ReadIfThere(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  DELTAFILL_TRY_ASSIGN(file, MappedFile::Open(path));
  if (file->bytes().size() > kTokenizerBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": over ", kTokenizerBytesMax, " bytes"));
  }
  return std::string(file->text());
}

absl::StatusOr<TokenizerFile> OwnFile(const std::string& path, std::string text) {
  auto document = ParseStrictJson(text);
  if (!document.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", document.status().message()));
  }
  if (!document->is_object() || !document->contains("kind") || !(*document)["kind"].is_string() ||
      (*document)["kind"].get<std::string>().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": kind must be a string"));
  }
  return TokenizerFile{(*document)["kind"].get<std::string>(), std::move(text)};
}

}  // namespace

absl::StatusOr<TokenizerFile> ReadTokenizerFile(const std::string& directory) {
  const std::string own_path = directory + "/" + kTokenizerFileName;
  DELTAFILL_TRY_ASSIGN(own, ReadIfThere(own_path));
  if (own) return OwnFile(own_path, *std::move(own));
  const std::string ranks_path = directory + "/tiktoken.model";
  DELTAFILL_TRY_ASSIGN(ranks, ReadIfThere(ranks_path));
  if (ranks) {
    DELTAFILL_TRY_ASSIGN(config, ReadIfThere(directory + "/tokenizer_config.json"));
    const std::string configuration = config.value_or("");
    std::string contents =
        absl::StrCat("deltafill.tiktoken.1\n", configuration.size(), "\n", configuration, *ranks);
    if (contents.size() > kTokenizerBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(ranks_path, ": over ", kTokenizerBytesMax,
                                                     " bytes with tokenizer_config.json"));
    }
    return TokenizerFile{"tiktoken", std::move(contents)};
  }
  DELTAFILL_TRY_ASSIGN(library, ReadIfThere(directory + "/tokenizer.json"));
  if (library) return TokenizerFile{"huggingface", *std::move(library)};
  return TokenizerFile{};
}

}  // namespace deltafill::worker
