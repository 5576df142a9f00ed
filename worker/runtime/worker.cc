#include "worker/runtime/worker.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "worker/exchange/exchange_server.h"
#include "worker/exchange/worker_exchange.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/attempt_book.h"
#include "worker/runtime/boundary_saver.h"
#include "worker/runtime/cost_probe.h"
#include "worker/runtime/decode_lane.h"
#include "worker/runtime/prefill_lane.h"
#include "worker/runtime/state_parts.h"
#include "worker/runtime/worker_agent.h"

namespace deltafill::worker {
namespace {

constexpr std::chrono::milliseconds kIdlePoll{2};

absl::Status CheckSetup(const WorkerSetup& setup) {
  if (setup.name.empty()) return absl::InvalidArgumentError("name: empty");
  if (setup.served.model == nullptr) return absl::InvalidArgumentError("served.model: not set");
  if (setup.served.name.empty()) return absl::InvalidArgumentError("served.name: empty");
  if (setup.store == nullptr) return absl::InvalidArgumentError("store: not set");
  if (setup.coordinator == nullptr) return absl::InvalidArgumentError("coordinator: not set");
  return absl::OkStatus();
}

absl::StatusOr<std::string> AdvertisedAddress(const WorkerSetup& setup, int port) {
  std::string host = setup.exchange_advertise_host;
  if (host.empty()) {
    host = setup.exchange_listen.substr(0, setup.exchange_listen.rfind(':'));
    if (host.empty() || host == "0.0.0.0" || host == "[::]" || host == "::") {
      return absl::InvalidArgumentError(absl::StrCat(
          "exchange_advertise_host: needed when listening on ", setup.exchange_listen));
    }
  }
  return absl::StrCat(host, ":", port);
}

}  // namespace

class Worker::Composition : public CommandHandler {
 public:
  explicit Composition(WorkerSetup setup) : setup_(std::move(setup)) {}

  ~Composition() override {
    Stop();
    // Lanes before what they use; their waits have been ended by Stop.
    prefill_.reset();
    decode_.reset();
    saver_.reset();
    server_.reset();
    exchange_.reset();
  }

  absl::Status Start();
  void Stop() {
    if (agent_ != nullptr) agent_->Stop();
    if (attempts_ != nullptr) attempts_->AbortAll();
  }

  void OnWelcome(uint32_t worker) override { exchange_->SetWorker(worker); }
  void OnCommand(WorkerCommand command) override;
  void OnBadCommand(const AttemptKey& attempt, const absl::Status& status) override {
    attempts_->Fail(attempt, status);
  }
  void OnDetached() override {
    attempts_->AbortAll();
    while (!LanesIdle()) std::this_thread::sleep_for(kIdlePoll);
  }
  WorkerHeartbeat Heartbeat() override {
    // A card may fail while nothing runs on it.
    absl::Status device = DeviceStatus(setup_.served.model->backend());
    if (!device.ok()) agent_->Emit(WorkerFailed{std::move(device)});
    return {saver_->queued_bytes(), prefill_->TakeStallSeconds(), false};
  }
  // Lanes feed the saver and the links: ask in this order.
  bool Idle() override {
    if (!LanesIdle() || !exchange_->Flush(std::chrono::milliseconds(0))) return false;
    exchange_->LogTraffic();  // before the worker leaves
    if (server_ != nullptr) server_->LogTraffic();
    return true;
  }

  WorkerAgent& agent() { return *agent_; }
  const WorkerProfile& profile() const { return profile_; }

 private:
  // Keeps the model.
  std::shared_ptr<kernels::Backend> SharedBackend() const {
    return {setup_.served.model, &setup_.served.model->backend()};
  }
  bool LanesIdle() const { return prefill_->idle() && decode_->idle() && saver_->idle(); }
  absl::Status StartExchange();
  absl::Status MakeLanes();
  absl::Status DescribeWorker();
  absl::StatusOr<CostConstants> Costs();

  const WorkerSetup setup_;
  WorkerProfile profile_;
  std::shared_ptr<Mailbox> mailbox_;
  std::unique_ptr<WorkerAgent> agent_;
  std::unique_ptr<LatentPool> latent_pool_;
  std::unique_ptr<LatentShelf> latents_;
  std::unique_ptr<AttemptBook> attempts_;
  std::unique_ptr<WorkerExchange> exchange_;
  std::unique_ptr<ExchangeServer> server_;
  std::unique_ptr<BoundarySaver> saver_;
  std::unique_ptr<PrefillLane> prefill_;
  std::unique_ptr<DecodeLane> decode_;
};

absl::Status Worker::Composition::Start() {
  DELTAFILL_TRY(CheckSetup(setup_));
  DELTAFILL_TRY(StartExchange());
  DELTAFILL_TRY(MakeLanes());
  DELTAFILL_TRY(DescribeWorker());
  agent_->Start(profile_, this);
  return absl::OkStatus();
}

absl::Status Worker::Composition::StartExchange() {
  const StateLayout& layout = setup_.served.model->state_layout();
  MailboxLimits limits;
  limits.unreserved_bytes_max = UnreservedBytes(layout.bytes);
  if (!layout.latents.layers.empty()) {
    // More than this worker has room for cannot be meant for it.
    limits.latent_bytes_max = setup_.latent_bytes_max / layout.latents.layers.size();
    limits.unreserved_bytes_max += setup_.latent_bytes_max;
  }
  kernels::Backend& backend = setup_.served.model->backend();
  mailbox_ = std::make_shared<Mailbox>(layout, limits, SharedBackend());
  exchange_ = std::make_unique<WorkerExchange>(
      mailbox_, setup_.registry,
      WorkerExchangeOptions{ExchangeLinkLimits(),
                            [this](const AttemptKey& attempt, const absl::Status& cause) {
                              attempts_->Fail(attempt, cause, false, true);
                            },
                            setup_.device_transport, setup_.log});
  agent_ = std::make_unique<WorkerAgent>(setup_.coordinator, WorkerAgentOptions{.log = setup_.log});
  latent_pool_ = std::make_unique<LatentPool>(&backend, &layout.latents, setup_.latent_bytes_max);
  latents_ = std::make_unique<LatentShelf>(latent_pool_.get());
  attempts_ =
      std::make_unique<AttemptBook>(exchange_.get(), latents_.get(), agent_.get(), &backend);
  if (setup_.exchange_listen.empty()) return absl::OkStatus();
  ExchangeServerOptions options;
  options.transport = setup_.device_transport;
  options.log = setup_.log;
  DELTAFILL_TRY_ASSIGN(server, ExchangeServer::Start(setup_.exchange_listen, mailbox_, options));
  DELTAFILL_TRY_ASSIGN(address, AdvertisedAddress(setup_, server->port()));
  server_ = std::move(server);
  profile_.exchange_address = std::move(address);
  return absl::OkStatus();
}

absl::Status Worker::Composition::MakeLanes() {
  Model& model = *setup_.served.model;
  saver_ = std::make_unique<BoundarySaver>(setup_.store, &model.state_layout(), &model.backend());
  DELTAFILL_TRY(saver_->status());
  const LaneParts parts{&model,          exchange_.get(), setup_.store, saver_.get(),
                        attempts_.get(), latents_.get(),  agent_.get()};
  DELTAFILL_TRY_ASSIGN(prefill, PrefillLane::Create(parts, {setup_.threads, setup_.range_tokens_max,
                                                            setup_.capture_bytes_max}));
  prefill_ = std::move(prefill);
  DELTAFILL_TRY_ASSIGN(decode, DecodeLane::Create(parts, {.threads = setup_.threads,
                                                          .batch_max = setup_.decode_batch_max}));
  decode_ = std::move(decode);
  return absl::OkStatus();
}

absl::StatusOr<CostConstants> Worker::Composition::Costs() {
  if (setup_.costs.has_value()) return *setup_.costs;
  const CostProbeOptions options{setup_.threads, setup_.range_tokens_max};
  Model& model = *setup_.served.model;
  // To itself through its own port: what a neighbour on a fast network costs.
  const ExchangeTarget own_port{UINT32_MAX, profile_.exchange_address};
  WorkerExchange through_port(
      mailbox_, nullptr, ExchangeLinkLimits(),
      [this](const AttemptKey& attempt, const absl::Status&) { mailbox_->Abort(attempt); });
  if (!own_port.address.empty() && setup_.device_transport == nullptr) {
    return MeasureCosts(model, through_port, own_port, options);
  }
  auto mailbox = std::make_shared<Mailbox>(model.state_layout(), MailboxLimits(), SharedBackend());
  WorkerExchange in_process(std::move(mailbox), nullptr, ExchangeLinkLimits(), nullptr);
  in_process.SetWorker(0);
  absl::StatusOr<CostConstants> costs = MeasureCosts(model, in_process, {0, ""}, options);
  if (own_port.address.empty() || !costs.ok()) return costs;
  // A card has no device link with itself: copies on it, and their announcement through the port.
  DELTAFILL_TRY(AddAnnouncements(model.state_layout(), through_port, own_port, &*costs));
  return costs;
}

absl::Status Worker::Composition::DescribeWorker() {
  Model& model = *setup_.served.model;
  const ModelConfig& config = model.config();
  const std::string& numerics = model.backend().numerics();
  DELTAFILL_TRY_ASSIGN(costs, Costs());
  if (setup_.log) setup_.log(absl::StrCat(setup_.name, ": costs: ", DescribeCosts(costs)));
  DELTAFILL_TRY_ASSIGN(state_parts, PartHeaders(model.state_layout(), 0));
  profile_.name = setup_.name;
  profile_.device = setup_.device.empty()
                        ? absl::StrCat(numerics, ", ", setup_.threads,
                                       setup_.threads == 1 ? " thread" : " threads")
                        : setup_.device;
  profile_.range_tokens_max = static_cast<uint64_t>(setup_.range_tokens_max);
  profile_.decode_batch_max = static_cast<uint32_t>(setup_.decode_batch_max);
  profile_.costs = costs;
  profile_.model_name = setup_.served.name;
  profile_.fingerprint = model.fingerprint();
  profile_.numerics = numerics;
  profile_.vocabulary = static_cast<uint32_t>(config.vocab_size);
  profile_.layers = static_cast<uint32_t>(config.layers.size());
  for (const StateEntry& entry : model.state_layout().entries) profile_.state_bytes += entry.bytes;
  profile_.position_max = static_cast<uint64_t>(config.position_max);
  profile_.eos_ids = config.eos_ids;
  profile_.tokenizer_kind = setup_.served.tokenizer.kind;
  profile_.tokenizer_file = setup_.served.tokenizer.contents;
  profile_.state_parts = std::move(state_parts);
  profile_.latents = model.state_layout().latents;
  profile_.latent_tokens_max = latent_pool_->tokens_max();
  return absl::OkStatus();
}

void Worker::Composition::OnCommand(WorkerCommand command) {
  if (auto* range = std::get_if<RangeCommand>(&command)) {
    prefill_->Run(std::move(*range));
  } else if (auto* decode = std::get_if<DecodeCommand>(&command)) {
    decode_->Run(std::move(*decode));
  } else if (auto* state_export = std::get_if<ExportCommand>(&command)) {
    decode_->Run(std::move(*state_export));
  } else if (auto* abort = std::get_if<AbortCommand>(&command)) {
    attempts_->Abort(abort->attempt);
  }
}

Worker::Worker(std::unique_ptr<Composition> composition) : composition_(std::move(composition)) {}
Worker::~Worker() = default;

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(WorkerSetup setup) {
  auto composition = std::make_unique<Composition>(std::move(setup));
  DELTAFILL_TRY(composition->Start());
  return std::unique_ptr<Worker>(new Worker(std::move(composition)));
}

bool Worker::Drain(std::chrono::milliseconds timeout) {
  return composition_->agent().Drain(timeout);
}

void Worker::Stop() { composition_->Stop(); }

bool Worker::WaitFinished(std::chrono::milliseconds timeout) {
  return composition_->agent().WaitFinished(timeout);
}

absl::Status Worker::status() const { return composition_->agent().status(); }
bool Worker::attached() const { return composition_->agent().attached(); }
const WorkerProfile& Worker::profile() const { return composition_->profile(); }

}  // namespace deltafill::worker
