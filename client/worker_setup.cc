#include "client/worker_setup.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/byte_size.h"
#include "coordinator/front/log.h"
#include "worker/exchange/nccl/open_transport.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/decode_lane.h"

namespace deltafill::client {

absl::StatusOr<worker::WorkerSetup> NewWorkerSetup(const ComputeOptions& options, int workers) {
  absl::StatusOr<uint64_t> latents = ParseByteSize("--latent-budget", options.latent_budget);
  if (!latents.ok()) return latents.status();
  worker::WorkerSetup setup;
  setup.latent_bytes_max = *latents;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  setup.threads =
      options.threads_per_worker > 0 ? options.threads_per_worker : std::max(1, cores / workers);
  setup.decode_batch_max = options.decode_batch;
  setup.range_tokens_max = static_cast<int64_t>(options.range_tokens_max);
  setup.log = coordinator::LogNotice;
  return setup;
}

absl::Status LoadOnto(const Device& device, const ComputeOptions& options, int workers,
                      worker::WorkerSetup* setup) {
  DELTAFILL_TRY_ASSIGN(backend, OpenBackend(device));
  const auto log = [&](const std::string& line) {
    setup->log(absl::StrCat(device.name, ": ", line));
  };
  worker::ServedModelSource source;
  source.directory = options.model_directory;
  source.random_seed = options.random_weights;
  source.weight_dtype = device.backend.compute_dtype;
  const worker::WorkerMemory memory{.range_tokens_max = setup->range_tokens_max,
                                    .decode_rows_max = worker::DecodeLaneOptions().rows_max,
                                    .decode_batch_max = setup->decode_batch_max,
                                    .capture_bytes_max = setup->capture_bytes_max,
                                    .latent_bytes_max = setup->latent_bytes_max};
  DELTAFILL_TRY_ASSIGN(served,
                       worker::LoadServedModel(source, std::move(backend), {memory, workers}, log));
  setup->range_tokens_max = served.range_tokens_max;
  setup->served = std::move(served);
  if (device.is_cuda) {
    // Settled by now: the weights are made.
    setup->device = absl::StrCat(device.name, ", ", setup->served.model->backend().numerics());
  }
  return absl::OkStatus();
}

void LogMemoryUse(const worker::WorkerSetup& setup) {
  kernels::MemoryReport report;
  if (!setup.served.model->backend().ReadMemory(&report).ok()) return;
  setup.log(absl::StrCat("memory: ", worker::DescribeUse(report), ", ", setup.device));
}

void OpenDeviceTransport(const Device& device, worker::WorkerSetup* setup) {
  if (!device.is_cuda) return;
  std::unique_ptr<worker::DeviceTransport> transport;
  const kernels::Status opened =
      worker::OpenNcclTransport({.device = device.backend.device}, &transport);
  setup->log(opened.ok()
                 ? absl::StrCat(device.name, ": ", transport->description(), " on ",
                                transport->card(), " for states to other processes")
                 : absl::StrCat(device.name, ": states to other processes go through the host: ",
                                opened.message()));
  setup->device_transport = std::move(transport);
}

}  // namespace deltafill::client
