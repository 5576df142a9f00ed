#include "client/cli.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_join.h"
#include "client/commands.h"
#include "client/options.h"
#include "worker/model/init.h"

namespace deltafill::client {
namespace {

// More than a century; what is beyond it is a slip, and its message would be long.
constexpr double kSecondsMax = 1e10;
// Of --range-tokens and --range-tokens-max: more than a prompt has.
constexpr uint64_t kRangeTokensMax = uint64_t{1} << 24;

CLI::Range Seconds() { return CLI::Range(0.0, kSecondsMax, "SECONDS"); }

// The command that parsing chose; run after parsing so that nothing starts on bad arguments.
using Chosen = std::function<int()>;

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

// Makes a verb whose options live as long as the app and which runs `command` with them.
template <typename Options>
Options* AddVerb(CLI::App* parent, const std::string& name, const std::string& help,
                 int (*command)(const Options&), Chosen* chosen, CLI::App** verb) {
  auto options = std::make_shared<Options>();
  *verb = parent->add_subcommand(name, help);
  (*verb)->callback(
      [options, command, chosen] { *chosen = [options, command] { return command(*options); }; });
  return options.get();
}

void AddPrefill(CLI::App* app, Chosen* chosen) {
  CLI::App* verb = nullptr;
  auto* options = AddVerb(app, "prefill", "Compute and store the prefix state of a prompt",
                          &RunPrefill, chosen, &verb);
  AddServer(verb, &options->server);
  AddPrompt(verb, kPromptHelp, &options->prompt);
  verb->add_option("--model", options->model, "Model name, if the service has several");
  verb->add_option("--checkpoint-every", options->checkpoint_every,
                   "Keep a state every so many tokens (rounded down to 64)");
  verb->add_option("--checkpoint-at", options->checkpoint_at, "Keep states at these tokens")
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
  verb->add_option("--seed", options->seed, "Of sampling")->capture_default_str();
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
  verb->add_option("--seed", ask->seed, "Of sampling")->capture_default_str();
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
  verb->add_option("--seed", init->seed, "Of the weights")->capture_default_str();
  verb->add_flag("--config-only", init->config_only,
                 "Leave the weights out, for --random-weights of serve and worker");
  verb->add_option("--out", init->out_directory, "Directory to make")->required();
  verb->add_flag("--json", init->json, "One JSON object as the last line of standard output");
  auto* inspect =
      AddVerb(model, "inspect", "What a directory holds", &RunModelInspect, chosen, &verb);
  verb->add_option("directory", inspect->directory, "Model directory")->required();
  verb->add_flag("--json", inspect->json, "One JSON object as the last line of standard output");
}

void AddCompute(CLI::App* verb, const char* device_help, ComputeOptions* compute) {
  verb->add_option("--model", compute->model_directory, "Model directory")->required();
  verb->add_option(
      "--random-weights", compute->random_weights,
      "Make weights from this seed instead of reading the directory's: for benchmarks");
  verb->add_option("--device", compute->device, device_help)->capture_default_str();
  verb->add_option("--threads-per-worker", compute->threads_per_worker,
                   "0: the machine's cores divided by the workers")
      ->check(CLI::Range(0, 1024));
  verb->add_option(
          "--range-tokens-max", compute->range_tokens_max,
          "Room for this many tokens' activations, a multiple of 64; 0: the device's choice "
          "(4096 on a CPU, up to 16384 on a card)")
      ->check(CLI::Range(uint64_t{0}, kRangeTokensMax));
  verb->add_option(
          "--decode-batch", compute->decode_batch,
          "Decodes and exports that one worker runs at once; more wait. Each takes room for "
          "three states")
      ->capture_default_str()
      ->check(CLI::Range(1, 512));
  verb->add_option("--latent-budget", compute->latent_budget,
                   "Latents of attention layers that one worker keeps, for instance 64G")
      ->capture_default_str();
  verb->add_option("--dtype", compute->compute_dtype,
                   "Of matrix products: f32 (the CPU's if not given) or bf16 (CUDA's only one)")
      ->check(CLI::IsMember({"f32", "bf16"}));
  verb->add_option("--isa", compute->isa, "Pin the CPU's instruction set, and with it the bits")
      ->check(CLI::IsMember({"avx2", "avx512"}));
}

void AddScheduling(CLI::App* verb, SchedulingOptions* scheduling) {
  verb->add_option("--range-tokens", scheduling->range_tokens,
                   "Tokens a range, a multiple of 64; 0: the planner's choice")
      ->check(CLI::Range(uint64_t{0}, kRangeTokensMax));
  verb->add_option("--recovery-interval-s", scheduling->recovery_interval_s,
                   "A lost worker costs at most so much work")
      ->check(Seconds())
      ->capture_default_str();
  verb->add_option(
          "--progress-timeout-s", scheduling->progress_timeout_s,
          "A worker whose range, decodes or exports get no further for so long is given up; "
          "0: never")
      ->check(Seconds())
      ->capture_default_str();
  verb->add_option("--prompts-running-max", scheduling->prompts_running_max, "At once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb->add_option("--prompts-queued-max", scheduling->prompts_queued_max, "Waiting")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
}

void AddStoreRole(CLI::App* verb, StoreRoleOptions* store) {
  verb->add_option("--store", store->directory, "Directory of the state store, made if absent")
      ->required();
  verb->add_option("--store-budget", store->budget,
                   "Bytes of parts kept, for instance 200G; 0: unlimited");
}

// Serving clients: of serve and coordinator.
void AddClientPort(CLI::App* verb, ClientPortOptions* port) {
  verb->add_option("--listen", port->listen, "Client port")->capture_default_str();
  verb->add_option("--credentials", port->credentials_file,
                   "Tokens and tenants; needed to listen beyond loopback");
  verb->add_option("--tls-certificate", port->tls_certificate, "PEM certificate chain: serve TLS");
  verb->add_option("--tls-key", port->tls_key, "PEM private key of the certificate");
}

void AddServe(CLI::App* app, Chosen* chosen) {
  CLI::App* verb = nullptr;
  auto* options = AddVerb(app, "serve", "All roles in one process", &RunServe, chosen, &verb);
  AddCompute(verb, "cpu, cuda (the first GPU), or GPUs by number: cuda:0,1", &options->compute);
  AddScheduling(verb, &options->scheduling);
  AddStoreRole(verb, &options->store);
  AddClientPort(verb, &options->port);
  verb->add_option("--workers", options->workers,
                   "Workers in this process, spread over the devices; those of a device share one "
                   "loaded model. 0: one a device")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
}

void AddRoles(CLI::App* app, Chosen* chosen) {
  CLI::App* verb = nullptr;
  auto* coordinator = AddVerb(app, "coordinator", "Front API, planner and scheduler",
                              &RunCoordinator, chosen, &verb);
  AddScheduling(verb, &coordinator->scheduling);
  AddClientPort(verb, &coordinator->port);
  verb->add_option("--worker-listen", coordinator->worker_listen, "Port that workers attach to")
      ->capture_default_str();
  verb->add_option("--store", coordinator->store_address, "State store, host:port")->required();

  auto* worker = AddVerb(app, "worker", "Runs ranges of prompts", &RunWorker, chosen, &verb);
  AddCompute(verb, "cpu, cuda (the first GPU) or cuda:N", &worker->compute);
  verb->add_option("--name", worker->name, "Unique; default host and process");
  verb->add_option("--listen", worker->listen, "Port for peers")->capture_default_str();
  verb->add_option("--advertise", worker->advertise, "Address that peers use, if not --listen's");
  verb->add_option("--coordinator", worker->coordinator_address, "host:port of --worker-listen")
      ->required();
  verb->add_option("--store", worker->store_address, "State store, host:port")->required();

  auto* store = AddVerb(app, "statestore", "Keeps prefix states", &RunStateStore, chosen, &verb);
  AddStoreRole(verb, &store->store);
  verb->add_option("--listen", store->listen, "Port for coordinator and workers")
      ->capture_default_str();
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
