// snapshot ask: decodes from a snapshot's end.
#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/snapshot/ask_template.h"
#include "client/snapshot/fetched_tokenizer.h"
#include "client/snapshot/snapshot_calls.h"
#include "client/snapshot/version_name.h"

namespace deltafill::client {
namespace {

// The prompt after the snapshot: text, or with a template the tokens themselves.
absl::Status PutPrompt(SnapshotCalls& calls, const SnapshotAskOptions& options,
                       const std::string& model, PromptOptions* prompt) {
  if (options.template_file.empty()) {
    prompt->prompt =
        options.raw ? options.question : absl::StrCat("Question: ", options.question, "\nAnswer: ");
    return absl::OkStatus();
  }
  const absl::StatusOr<AskTemplate> around = ReadTemplate(options.template_file);
  if (!around.ok()) return around.status();
  FetchedTokenizer tokenizer;
  const absl::StatusOr<Tokenize> special = tokenizer.Fetch(calls, model, /*allow_special=*/true);
  if (!special.ok()) return special.status();
  const absl::StatusOr<Tokenize> plain = tokenizer.Fetch(calls, model);
  if (!plain.ok()) return plain.status();
  absl::StatusOr<std::vector<uint32_t>> tokens =
      PutQuestion(*around, options.question, *special, *plain);
  if (!tokens.ok()) return tokens.status();
  prompt->tokens = *std::move(tokens);
  return absl::OkStatus();
}

}  // namespace

int RunSnapshotAsk(const SnapshotAskOptions& options) {
  DecodeOptions decode;
  {
    SnapshotCalls calls(options.server);
    const absl::StatusOr<std::string> name = FindVersion(calls, options.server, options.name);
    if (!name.ok()) return calls.Fail(name.status());
    v1::SnapshotDescription snapshot;
    absl::Status status = calls.Get(*name, false, &snapshot);
    if (!status.ok()) return calls.Fail(status);
    if (!snapshot.damage().empty()) {
      return calls.Fail(absl::FailedPreconditionError(snapshot.name() + ": " + snapshot.damage() +
                                                      "; an update makes it again"));
    }
    decode.state = snapshot.state();
    decode.model = snapshot.summary().model();
    status = PutPrompt(calls, options, decode.model, &decode.prompt);
    if (!status.ok()) return calls.Fail(status);
  }
  decode.server = options.server;
  decode.max_tokens = options.max_tokens;
  decode.temperature = options.temperature;
  decode.top_p = options.top_p;
  decode.seed = options.seed;
  return RunDecode(decode);
}

}  // namespace deltafill::client
