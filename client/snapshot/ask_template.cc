#include "client/snapshot/ask_template.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace deltafill::client {

absl::StatusOr<AskTemplate> ReadTemplate(const std::string& path) {
  const auto refuse = [&path](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("--template ", path, ": ", why));
  };
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kTemplateBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (!file.eof() && text.size() <= kTemplateBytesMax) {
    return refuse(errno == 0 ? "cannot be read" : std::strerror(errno));
  }
  if (text.size() > kTemplateBytesMax) {
    return refuse(absl::StrCat("more than ", kTemplateBytesMax, " bytes"));
  }
  if (text.ends_with('\n')) text.pop_back();
  const size_t at = text.find(kQuestionMark);
  if (at == std::string::npos || text.find(kQuestionMark, at + 1) != std::string::npos) {
    return refuse("must have {question} in it, once");
  }
  return AskTemplate{text.substr(0, at), text.substr(at + kQuestionMark.size())};
}

absl::StatusOr<std::vector<uint32_t>> PutQuestion(const AskTemplate& around,
                                                  const std::string& question,
                                                  const Tokenize& special, const Tokenize& plain) {
  const struct {
    const std::string& text;
    const Tokenize& tokenize;
  } kParts[] = {{around.before, special}, {question, plain}, {around.after, special}};
  std::vector<uint32_t> tokens;
  for (const auto& part : kParts) {
    const absl::StatusOr<std::vector<uint32_t>> made = part.tokenize(part.text);
    if (!made.ok()) return made.status();
    tokens.insert(tokens.end(), made->begin(), made->end());
  }
  return tokens;
}

}  // namespace deltafill::client
