// The command line of the verbs that run roles.
#include "client/cli_verb.h"
#include "client/commands.h"
#include "client/options.h"

namespace deltafill::client {
namespace {

// Of --range-tokens and --range-tokens-max: more than a prompt has.
constexpr uint64_t kRangeTokensMax = uint64_t{1} << 24;

void AddCompute(CLI::App* verb, const char* device_help, ComputeOptions* compute) {
  verb->add_option("--model", compute->model_directory, "Model directory")->required();
  verb->add_option("--random-weights", compute->random_weights,
                   "Make weights from this seed instead of reading the directory's: for benchmarks")
      ->check(NotNegative());
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
          "A worker whose range or generating gets no further for so long is given up; 0: never")
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

}  // namespace

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

}  // namespace deltafill::client
