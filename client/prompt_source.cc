#include "client/prompt_source.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace deltafill::client {
namespace {

// Past the service's own limits, so that a wrong file is refused before it is read whole.
constexpr size_t kPromptBytesMax = size_t{64} << 20;

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  const bool is_stdin = path == "-";
  std::unique_ptr<FILE, int (*)(FILE*)> file(
      is_stdin ? stdin : std::fopen(path.c_str(), "rb"),
      is_stdin ? [](FILE*) { return 0; } : [](FILE* open) { return std::fclose(open); });
  if (!file) return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::string contents;
  char chunk[1 << 16];
  size_t count;
  while ((count = std::fread(chunk, 1, sizeof(chunk), file.get())) > 0) {
    contents.append(chunk, count);
    if (contents.size() > kPromptBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": more than ", kPromptBytesMax, " bytes"));
    }
  }
  if (std::ferror(file.get())) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return contents;
}

absl::StatusOr<PromptContent> ReadTokens(const std::string& path) {
  absl::StatusOr<std::string> bytes = ReadWhole(path);
  if (!bytes.ok()) return bytes.status();
  if (bytes->size() % sizeof(uint32_t) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", bytes->size(), " bytes are not a whole number of uint32 token ids"));
  }
  std::vector<uint32_t> tokens(bytes->size() / sizeof(uint32_t));
  std::memcpy(tokens.data(), bytes->data(), bytes->size());
  return tokens;
}

}  // namespace

absl::StatusOr<PromptContent> ReadPrompt(const PromptOptions& options, bool or_standard_input) {
  if (!options.tokens.empty()) return options.tokens;
  if (!options.tokens_file.empty()) return ReadTokens(options.tokens_file);
  if (!options.prompt.empty()) return PromptText{options.prompt};
  if (options.text_file.empty() && !or_standard_input) return std::vector<uint32_t>{};
  absl::StatusOr<std::string> text = ReadWhole(options.text_file.empty() ? "-" : options.text_file);
  if (!text.ok()) return text.status();
  return PromptText{*std::move(text)};
}

std::optional<PromptContent> ReadPromptOrSay(const PromptOptions& options, bool or_standard_input) {
  absl::StatusOr<PromptContent> prompt = ReadPrompt(options, or_standard_input);
  if (prompt.ok()) return *std::move(prompt);
  std::fprintf(stderr, "deltafill: %s\n", std::string(prompt.status().message()).c_str());
  return std::nullopt;
}

}  // namespace deltafill::client
