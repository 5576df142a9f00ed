#include "client/cli.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_join.h"
#include "client/cli_verb.h"
#include "client/commands.h"
#include "client/options.h"
#include "worker/model/init.h"

namespace deltafill::client {
namespace {

void AddServer(CLI::App* verb, ServerOptions* server) {
  verb->add_option("--server", server->server, "Service address, host:port")
      ->envname("DELTAFILL_SERVER")
      ->capture_default_str();
  verb->add_option("--tenant", server->tenant, "Whose states these are (loopback services only)")
      ->envname("DELTAFILL_TENANT");
  verb->add_option("--token-file", server->token_file, "File with the bearer token")
      ->envname("DELTAFILL_TOKEN_FILE");
  verb->add_option("--tls-ca", server->tls_ca_file,
                   "Talk TLS; PEM file with the authority that signed the service's certificate")
      ->envname("DELTAFILL_TLS_CA");
  verb->add_option("--timeout-s", server->timeout_s, "Deadline of the call in seconds; 0: none")
      ->check(Seconds());
  verb->add_flag("--json", server->json, "One JSON object as the last line of standard output");
}

constexpr char kPromptHelp[] = "The prompt: one of these, otherwise standard input";

void AddPrompt(CLI::App* verb, const std::string& help, PromptOptions* prompt) {
  auto* source = verb->add_option_group("prompt", help);
  source->add_option("--text", prompt->text_file, "UTF-8 text file; - is standard input");
  source->add_option("--tokens", prompt->tokens_file,
                     "Token ids as uint32 little-endian; - is standard input");
  source->add_option("--prompt", prompt->prompt, "The text itself");
  source->require_option(0, 1);
}

void AddPrefill(CLI::App* app, Chosen* chosen) {
  CLI::App* verb = nullptr;
  auto* options = AddVerb(app, "prefill", "Compute and store the prefix state of a prompt",
                          &RunPrefill, chosen, &verb);
  AddServer(verb, &options->server);
  AddPrompt(verb, kPromptHelp, &options->prompt);
  verb->add_option("--model", options->model, "Model name, if the service has several");
  verb->add_option("--checkpoint-every", options->checkpoint_every,
                   "Keep a state every so many tokens (rounded down to 64)")
      ->check(NotNegative());
  verb->add_option("--checkpoint-at", options->checkpoint_at, "Keep states at these tokens")
      ->check(NotNegative())
      ->delimiter(',');
  verb->add_option("--schedule", options->schedule, "How ranges are spread over workers")
      ->check(CLI::IsMember({"auto", "wavefront"}))
      ->capture_default_str();
  verb->add_option("--exactness", options->exactness, "any: other roundings are allowed")
      ->check(CLI::IsMember({"exact", "any"}))
      ->capture_default_str();
  verb->add_flag("--no-resume", options->no_resume, "Compute from token 0");
  verb->add_option("--return-logits", options->logits_file,
                   "Write the last token's logits here: float32 little-endian");
}

void AddLookup(CLI::App* app, Chosen* chosen) {
  CLI::App* verb = nullptr;
  auto* options =
      AddVerb(app, "lookup", "The deepest stored state of a prompt", &RunLookup, chosen, &verb);
  AddServer(verb, &options->server);
  AddPrompt(verb, kPromptHelp, &options->prompt);
  verb->add_option("--model", options->model, "Model name, if the service has several");
}

void AddDecode(CLI::App* app, Chosen* chosen) {
  CLI::App* verb = nullptr;
  auto* options =
      AddVerb(app, "decode", "Generate tokens from a state or a prompt", &RunDecode, chosen, &verb);
  AddServer(verb, &options->server);
  AddPrompt(verb, "What to go on from, or behind --state. " + std::string(kPromptHelp),
            &options->prompt);
  verb->add_option("--model", options->model, "Model name, if the service has several");
  verb->add_option("--state", options->state, "Handle to go on from");
  verb->add_option("--max-tokens", options->max_tokens, "At most so many")->capture_default_str();
  verb->add_option("--temperature", options->temperature, "0: greedy")->capture_default_str();
  verb->add_option("--top-p", options->top_p, "Nucleus sampling, (0, 1]")->capture_default_str();
  verb->add_option("--seed", options->seed, "Of sampling")
      ->check(NotNegative())
      ->capture_default_str();
  verb->add_option("--stop-ids", options->stop_ids, "Stop after one of these token ids")
      ->delimiter(',');
  verb->add_flag("--save-state", options->save_state, "Keep the state of prompt and answer");
  verb->add_flag("--ignore-eos", options->ignore_eos, "Go on after the model's end token");
}

void AddState(CLI::App* app, Chosen* chosen) {
  CLI::App* state = app->add_subcommand("state", "Stored states");
  state->require_subcommand(1);
  CLI::App* verb = nullptr;
  auto* list = AddVerb(state, "list", "The tenant's states", &RunStateList, chosen, &verb);
  AddServer(verb, &list->server);
  const struct {
    const char* name;
    const char* help;
    int (*command)(const StateOptions&);
  } kVerbs[] = {
      {"show", "What a state is", &RunStateShow},
      {"verify", "Read every part and compare its checksum", &RunStateVerify},
      {"pin", "Keep a state from eviction", &RunStatePin},
      {"unpin", "Let a state be evicted again", &RunStateUnpin},
      {"delete", "Forget a state", &RunStateDelete},
  };
  for (const auto& entry : kVerbs) {
    auto* options = AddVerb(state, entry.name, entry.help, entry.command, chosen, &verb);
    AddServer(verb, &options->server);
    verb->add_option("state", options->state, "Handle or state id")->required();
  }
  auto* fetch = AddVerb(state, "fetch", "Write a state's tensors as safetensors", &RunStateFetch,
                        chosen, &verb);
  AddServer(verb, &fetch->server);
  verb->add_option("state", fetch->state, "Handle")->required();
  verb->add_option("--layout", fetch->layout, "Whose names and shapes")
      ->check(CLI::IsMember({"canonical", "fla"}))
      ->capture_default_str();
  verb->add_option("--at", fetch->at, "block: the stored boundary; end: after the tail")
      ->check(CLI::IsMember({"block", "end"}))
      ->capture_default_str();
  verb->add_option("--out", fetch->out_file, "File to write")->required();
  verb->add_option("--layers", fetch->layers, "Only these layers")->delimiter(',');
  verb->add_option("--heads", fetch->heads, "Only heads begin:end");
}

// What is remembered for updates.
void AddSnapshotSettings(CLI::App* verb, SnapshotPutOptions* options) {
  verb->add_option("--model", options->model, "Model name, if the service has several");
  verb->add_option("--max-file-bytes", options->file_bytes_max, "Leave larger files out")
      ->capture_default_str();
  verb->add_flag("--plain", options->plain, "Read a git work tree as a plain directory");
  verb->add_option("--checkpoint-budget", options->checkpoint_budget,
                   "Bytes of states kept besides the last, for instance 4G; 0: 1G");
  verb->add_option("--versions", options->versions_max, "Git commits kept as NAME@COMMIT")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
}

void AddSnapshotPut(CLI::App* verb, SnapshotPutOptions* options) {
  AddServer(verb, &options->server);
  verb->add_option("name", options->name, "Name of the snapshot")->required();
  verb->add_flag("--no-resume", options->no_resume, "Compute from token 0");
  verb->add_option("--tokens-out", options->tokens_file,
                   "Write the tokens here: uint32 little-endian");
}

constexpr char kVersionHelp[] =
    "NAME, or NAME@REVISION: a commit's first 7 or more digits, a branch or a tag";

void AddSnapshotAsk(CLI::App* snapshot, Chosen* chosen) {
  CLI::App* verb = nullptr;
  auto* ask = AddVerb(snapshot, "ask", "Answer a question about a snapshot", &RunSnapshotAsk,
                      chosen, &verb);
  AddServer(verb, &ask->server);
  verb->add_option("name", ask->name, kVersionHelp)->required();
  verb->add_option("question", ask->question, "What to ask")->required();
  auto* raw = verb->add_flag("--raw", ask->raw,
                             "Send the question as it is, without Question: and Answer:");
  verb->add_option("--template", ask->template_file,
                   "File with the text around {question}, special tokens as the tokenizer spells "
                   "them; the model's chat template is not read")
      ->excludes(raw);
  verb->add_option("--max-tokens", ask->max_tokens, "At most so many")->capture_default_str();
  verb->add_option("--temperature", ask->temperature, "0: greedy")->capture_default_str();
  verb->add_option("--top-p", ask->top_p, "Nucleus sampling, (0, 1]")->capture_default_str();
  verb->add_option("--seed", ask->seed, "Of sampling")->check(NotNegative())->capture_default_str();
}

void AddSnapshot(CLI::App* app, Chosen* chosen) {
  CLI::App* snapshot = app->add_subcommand("snapshot", "States of a source tree, kept fresh");
  snapshot->require_subcommand(1);
  CLI::App* verb = nullptr;
  auto* create = AddVerb(snapshot, "create", "Read a tree and keep its states under a name",
                         &RunSnapshotCreate, chosen, &verb);
  AddSnapshotPut(verb, create);
  AddSnapshotSettings(verb, create);
  verb->add_option("dir", create->directory, "Git work tree or plain directory")->required();
  verb->add_option("--order-from", create->order_from, "Take the order of this snapshot's files");
  auto* update = AddVerb(snapshot, "update", "Bring a snapshot up to date with its tree",
                         &RunSnapshotUpdate, chosen, &verb);
  AddSnapshotPut(verb, update);
  verb->add_option("--dir", update->directory, "The tree, if not the remembered one");
  verb->add_flag("--reorder", update->reorder, "Order the files anew, what changes often last");
  verb->add_flag("--watch", update->watch, "Go on updating after changes, until interrupted");
  verb->add_option("--settle-s", update->settle_s, "With --watch: update after so long a quiet")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  auto* show = AddVerb(snapshot, "show", "What a snapshot holds", &RunSnapshotShow, chosen, &verb);
  AddServer(verb, &show->server);
  verb->add_option("name", show->name, kVersionHelp)->required();
  verb->add_flag("--files", show->files, "Each file with its tokens");
  auto* list = AddVerb(snapshot, "list", "The tenant's snapshots", &RunSnapshotList, chosen, &verb);
  AddServer(verb, &list->server);
  auto* forget = AddVerb(snapshot, "delete", "Forget a snapshot with its versions, or a version",
                         &RunSnapshotDelete, chosen, &verb);
  AddServer(verb, &forget->server);
  verb->add_option("name", forget->name, kVersionHelp)->required();
  AddSnapshotAsk(snapshot, chosen);
}

void AddModel(CLI::App* app, Chosen* chosen) {
  CLI::App* model = app->add_subcommand("model", "Model directories");
  model->require_subcommand(1);
  CLI::App* verb = nullptr;
  auto* init = AddVerb(model, "init", "Make a directory with a random, untrained checkpoint",
                       &RunModelInit, chosen, &verb);
  verb->add_option("--preset", init->preset,
                   "Shape of the model: " + absl::StrJoin(worker::ModelPresetNames(), ", "))
      ->capture_default_str();
  verb->add_option("--seed", init->seed, "Of the weights")
      ->check(NotNegative())
      ->capture_default_str();
  verb->add_flag("--config-only", init->config_only,
                 "Leave the weights out, for --random-weights of serve and worker");
  verb->add_option("--out", init->out_directory, "Directory to make")->required();
  verb->add_flag("--json", init->json, "One JSON object as the last line of standard output");
  auto* inspect =
      AddVerb(model, "inspect", "What a directory holds", &RunModelInspect, chosen, &verb);
  verb->add_option("directory", inspect->directory, "Model directory")->required();
  verb->add_flag("--json", inspect->json, "One JSON object as the last line of standard output");
}

}  // namespace

int RunCommandLine(int argc, char** argv) {
  CLI::App app("deltafill: long-context prefill with stored states", "deltafill");
  app.set_version_flag("--version", DELTAFILL_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(32);
  Chosen chosen;
  AddServe(&app, &chosen);
  AddPrefill(&app, &chosen);
  AddLookup(&app, &chosen);
  AddDecode(&app, &chosen);
  AddState(&app, &chosen);
  AddSnapshot(&app, &chosen);
  CLI::App* verb = nullptr;
  auto* status_options =
      AddVerb(&app, "status", "What a service runs and holds", &RunStatus, &chosen, &verb);
  AddServer(verb, &status_options->server);
  AddModel(&app, &chosen);
  AddRoles(&app, &chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    // What was misspelt, when the error is that something else is missing.
    const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
    if (code == static_cast<int>(CLI::ExitCodes::RequiredError) && !unknown.empty()) {
      std::fprintf(stderr, "Not known here: %s\n", unknown.front().c_str());
    }
    return code == 0 ? 0 : 2;
  }
  return chosen();
}

}  // namespace deltafill::client
