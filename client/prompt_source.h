// Reads a prompt from the place the command line names.
#ifndef DELTAFILL_CLIENT_PROMPT_SOURCE_H_
#define DELTAFILL_CLIENT_PROMPT_SOURCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "client/options.h"

namespace deltafill::client {

struct PromptText {
  std::string text;
};
using PromptContent = std::variant<PromptText, std::vector<uint32_t>>;

// As ReadPrompt; none after printing why.
std::optional<PromptContent> ReadPromptOrSay(const PromptOptions& options, bool or_standard_input);

// Standard input is text if no source is named and or_standard_input is set; otherwise no source
// means an empty token list. INVALID_ARGUMENT naming the file: unreadable, or not a whole number of
// uint32.
absl::StatusOr<PromptContent> ReadPrompt(const PromptOptions& options, bool or_standard_input);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_PROMPT_SOURCE_H_
