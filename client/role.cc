#include "client/role.h"

#include <grpcpp/grpcpp.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "client/byte_size.h"
#include "coordinator/front/elapsed.h"
#include "coordinator/front/log.h"

namespace deltafill::client {
namespace {

// Threads of one internal server; calls past them wait.
constexpr int kServerThreadsMax = 64;

}  // namespace

int FailRole(const std::string& what, const absl::Status& status) {
  std::fprintf(stderr, "deltafill: %s: %s\n", what.c_str(), status.ToString().c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

absl::StatusOr<ListeningServer> Listen(const std::string& listen, grpc::Service* service,
                                       int message_bytes_max) {
  grpc::ResourceQuota quota("deltafill-internal");
  quota.SetMaxThreads(kServerThreadsMax);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(message_bytes_max);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Its callers look whether it is still there, while a call of theirs waits.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service);
  ListeningServer listening;
  listening.server = builder.BuildAndStart();
  if (!listening.server || port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", listen));
  }
  listening.address = absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port);
  return listening;
}

void WarnIfAway(const std::string& address, StateStore& store) {
  const absl::Status reached = store.GetStats().status();
  if (reached.ok()) return;
  coordinator::LogWarning(absl::StrCat("--store ", address, ": ", reached.ToString()));
}

absl::StatusOr<std::unique_ptr<StateStore>> OpenStore(const StoreRoleOptions& options) {
  absl::StatusOr<uint64_t> budget = ParseByteSize("--store-budget", options.budget);
  if (!budget.ok()) return budget.status();
  StoreOptions store;
  store.directory = options.directory;
  store.budget_bytes = *budget;
  store.log = coordinator::LogWarning;
  return OpenRocksStore(store);
}

absl::StatusOr<std::unique_ptr<coordinator::TenantResolver>> LoadResolver(
    const std::string& credentials_file) {
  if (credentials_file.empty()) return std::unique_ptr<coordinator::TenantResolver>();
  return coordinator::LoadCredentials(credentials_file);
}

// A million prompts a millisecond lie between two coordinators' numbers.
uint64_t FirstPromptOfThisProcess() {
  return static_cast<uint64_t>(coordinator::UnixMilliseconds()) << 20;
}

coordinator::SchedulingOptions ToSchedulingOptions(const SchedulingOptions& options) {
  coordinator::SchedulingOptions scheduling;
  scheduling.scheduler.plan.range_tokens = options.range_tokens;
  scheduling.scheduler.prompts_running_max = options.prompts_running_max;
  scheduling.scheduler.prompts_queued_max = options.prompts_queued_max;
  scheduling.scheduler.recovery_interval_s = options.recovery_interval_s;
  scheduling.scheduler.progress_timeout_s = options.progress_timeout_s;
  scheduling.scheduler.prompt_last = FirstPromptOfThisProcess();
  scheduling.log = coordinator::LogNotice;
  return scheduling;
}

}  // namespace deltafill::client
