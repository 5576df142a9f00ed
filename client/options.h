// What the command line says, one struct a verb. Filled by cli.cc, read by the commands.
#ifndef DELTAFILL_CLIENT_OPTIONS_H_
#define DELTAFILL_CLIENT_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace deltafill::client {

inline constexpr char kDefaultAddress[] = "127.0.0.1:7450";

// Every verb that talks to a service.
struct ServerOptions {
  std::string server = kDefaultAddress;
  std::string tenant;       // sent as `deltafill-tenant` metadata if not empty
  std::string token_file;   // its contents are sent as a bearer token if not empty
  std::string tls_ca_file;  // PEM; "": no TLS
  double timeout_s = 0;     // 0: no deadline
  bool json = false;
};

// Where a prompt comes from; at most one is set. "-" is standard input.
struct PromptOptions {
  std::string text_file;
  std::string tokens_file;       // uint32 little-endian
  std::string prompt;            // the text itself
  std::vector<uint32_t> tokens;  // the ids themselves; not from the command line
};

struct PrefillOptions {
  ServerOptions server;
  PromptOptions prompt;
  std::string model;
  uint64_t checkpoint_every = 0;
  std::vector<uint64_t> checkpoint_at;
  std::string schedule = "auto";
  std::string exactness = "exact";
  bool no_resume = false;
  std::string logits_file;
};

struct LookupOptions {
  ServerOptions server;
  PromptOptions prompt;
  std::string model;
};

struct DecodeOptions {
  ServerOptions server;
  PromptOptions prompt;
  std::string model;
  std::string state;
  uint32_t max_tokens = 128;
  double temperature = 0;
  double top_p = 1;
  uint64_t seed = 0;
  std::vector<uint32_t> stop_ids;
  bool save_state = false;
  bool ignore_eos = false;
};

struct StateListOptions {
  ServerOptions server;
};

// show, verify, pin, unpin, delete
struct StateOptions {
  ServerOptions server;
  std::string state;
};

struct StateFetchOptions {
  ServerOptions server;
  std::string state;
  std::string layout = "canonical";
  std::string at = "block";
  std::string out_file;
  std::vector<uint32_t> layers;
  std::string heads;  // "begin:end"
};

struct StatusOptions {
  ServerOptions server;
};

struct ModelInitOptions {
  std::string preset = "tiny";
  uint64_t seed = 1;
  bool config_only = false;
  std::string out_directory;
  bool json = false;
};

struct ModelInspectOptions {
  std::string directory;
  bool json = false;
};

// snapshot create and update
struct SnapshotPutOptions {
  ServerOptions server;
  std::string name;
  std::string directory;  // of an update: "" for the remembered one
  std::string order_from;
  std::string model;
  std::string file_bytes_max = "1M";
  bool plain = false;
  std::string checkpoint_budget = "0";  // bytes; 0: the service's choice
  uint32_t versions_max = 8;
  bool no_resume = false;
  bool reorder = false;
  bool watch = false;
  double settle_s = 1;
  std::string tokens_file;  // written: uint32 little-endian
};

// snapshot show and delete
struct SnapshotOptions {
  ServerOptions server;
  std::string name;
  bool files = false;
};

struct SnapshotListOptions {
  ServerOptions server;
};

struct SnapshotAskOptions {
  ServerOptions server;
  std::string name;
  std::string question;
  bool raw = false;
  std::string template_file;
  uint32_t max_tokens = 512;
  double temperature = 0;
  double top_p = 1;
  uint64_t seed = 0;
};

// Shared by the roles.
struct ComputeOptions {
  std::string model_directory;
  std::optional<uint64_t> random_weights;  // the seed; none of the directory's weights then
  std::string device = "cpu";              // "cpu", "cuda", "cuda:0,1"
  int threads_per_worker = 0;              // 0: the machine's cores divided by the workers
  uint64_t range_tokens_max = 0;           // 0: the device's choice
  int decode_batch = 16;                   // of one worker
  std::string latent_budget = "8G";        // of one worker: bytes, or with K, M, G, T
  std::string compute_dtype;               // "f32" or "bf16"; "": the device's own
  std::string isa;                         // "", "avx2", "avx512"
};

struct SchedulingOptions {
  uint64_t range_tokens = 0;  // 0: the planner's choice
  double recovery_interval_s = 30;
  double progress_timeout_s = 300;
  int prompts_running_max = 16;
  int prompts_queued_max = 256;
};

struct StoreRoleOptions {
  std::string directory;
  std::string budget = "0";  // bytes, or with K, M, G, T; 0: unlimited
};

// The port that serves clients.
struct ClientPortOptions {
  std::string listen = kDefaultAddress;
  std::string credentials_file;
  std::string tls_certificate;  // PEM files; both or none
  std::string tls_key;
};

struct ServeOptions {
  ComputeOptions compute;
  SchedulingOptions scheduling;
  StoreRoleOptions store;
  ClientPortOptions port;
  int workers = 0;  // 0: one a device
};

struct CoordinatorOptions {
  SchedulingOptions scheduling;
  ClientPortOptions port;
  std::string worker_listen = "127.0.0.1:7451";
  std::string store_address;
};

struct WorkerOptions {
  ComputeOptions compute;
  std::string name;  // "": host name and process number
  std::string listen = "127.0.0.1:0";
  std::string advertise;  // address peers use; "": the listen address
  std::string coordinator_address;
  std::string store_address;
};

struct StateStoreOptions {
  StoreRoleOptions store;
  std::string listen = "127.0.0.1:7452";
};

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_OPTIONS_H_
