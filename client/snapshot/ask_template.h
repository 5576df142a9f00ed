// How a question is put: the text around it, which may hold a model's special tokens.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_ASK_TEMPLATE_H_
#define DELTAFILL_CLIENT_SNAPSHOT_ASK_TEMPLATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/snapshot/composed_snapshot.h"

namespace deltafill::client {

inline constexpr size_t kTemplateBytesMax = size_t{64} << 10;
inline constexpr std::string_view kQuestionMark = "{question}";

struct AskTemplate {
  std::string before;  // the question
  std::string after;
};

// A file's text with {question} in it once; a newline at its end does not count. INVALID_ARGUMENT
// naming the file.
absl::StatusOr<AskTemplate> ReadTemplate(const std::string& path);

// The template's text goes through `special`, which may yield special tokens, the question through
// `plain`, which does not: a question cannot end its own turn.
absl::StatusOr<std::vector<uint32_t>> PutQuestion(const AskTemplate& around,
                                                  const std::string& question,
                                                  const Tokenize& special, const Tokenize& plain);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_ASK_TEMPLATE_H_
