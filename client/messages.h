// Between the command line's forms and the API's messages; JSON forms of what several verbs print.
#ifndef DELTAFILL_CLIENT_MESSAGES_H_
#define DELTAFILL_CLIENT_MESSAGES_H_

#include <cstdint>
#include <nlohmann/json.hpp>

#include "client/prompt_source.h"
#include "proto/prefill.pb.h"

namespace deltafill::client {

using Json = nlohmann::ordered_json;

void SetPrompt(const PromptContent& content, v1::Prompt* prompt);

Json ToJson(const v1::Usage& usage);
Json ToJson(const v1::Timings& timings);
Json ToJson(const v1::StateDescription& state);

// For printf's %llu.
inline unsigned long long Wide(uint64_t number) { return number; }

// Prints one JSON object on a line of its own. Bytes that are no UTF-8 are replaced.
void PrintJson(const Json& object);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_MESSAGES_H_
