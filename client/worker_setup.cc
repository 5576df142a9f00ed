#include "client/worker_setup.h"

#include <algorithm>
#include <thread>

#include "client/byte_size.h"
#include "coordinator/front/log.h"

namespace deltafill::client {

absl::StatusOr<worker::ServedModel> LoadServedModel(const ComputeOptions& options) {
  kernels::BackendOptions backend;
  backend.compute_dtype =
      options.compute_dtype == "bf16" ? kernels::DType::kBF16 : kernels::DType::kF32;
  backend.isa = options.isa;
  return worker::LoadServedModel(options.model_directory, backend);
}

absl::StatusOr<worker::WorkerSetup> NewWorkerSetup(const ComputeOptions& options, int workers) {
  absl::StatusOr<uint64_t> latents = ParseByteSize("--latent-budget", options.latent_budget);
  if (!latents.ok()) return latents.status();
  worker::WorkerSetup setup;
  setup.latent_bytes_max = *latents;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  setup.threads =
      options.threads_per_worker > 0 ? options.threads_per_worker : std::max(1, cores / workers);
  setup.range_tokens_max = static_cast<int64_t>(options.range_tokens_max);
  setup.log = coordinator::LogNotice;
  return setup;
}

}  // namespace deltafill::client
