#include "worker/runtime/served_model.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/model_directory.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

std::string LastComponent(const std::string& directory) {
  std::filesystem::path path = std::filesystem::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "dir/"
  if (path.filename() == "." || path.filename() == "..") {
    std::error_code error;
    path = std::filesystem::canonical(path, error);
  }
  return path.filename().string();
}

// Of a device with memory of its own; the host's memory is only spoken of. Returns the tokens of a
// range that there is room for.
absl::StatusOr<int64_t> PlanAndCheck(const ServedModelSource& source, kernels::Backend& backend,
                                     const ServedModelUse& use, const LogLine& log) {
  DELTAFILL_TRY_ASSIGN(config, ReadModelConfig(source.directory));
  const DeviceMemory device{source.weight_dtype, backend.activation_dtype(),
                            backend.is_host_memory()};
  kernels::MemoryReport report;
  const kernels::Status reported = backend.ReadMemory(&report);
  const bool is_known = reported.code() != kernels::StatusCode::kUnsupported;
  if (is_known) DELTAFILL_TRY(reported);
  WorkerMemory memory = use.memory;
  if (memory.range_tokens_max == 0) {
    DELTAFILL_TRY_ASSIGN(tokens, ChooseRangeTokens(config, device, memory, use.workers,
                                                   is_known ? report.free_bytes : UINT64_MAX));
    memory.range_tokens_max = tokens;
  }
  DELTAFILL_TRY_ASSIGN(plan, PlanMemory(config, device, memory, use.workers));
  if (log) {
    log(absl::StrCat("memory: ", plan.ToString(), ", for ranges of up to ", memory.range_tokens_max,
                     " tokens"));
  }
  if (is_known) {
    DELTAFILL_TRY(CheckMemory(plan, report));
    DELTAFILL_TRY(backend.ReserveMemory(plan.reserved_bytes));
  }
  return memory.range_tokens_max;
}

}  // namespace

absl::StatusOr<ServedModel> LoadServedModel(const ServedModelSource& source,
                                            std::shared_ptr<kernels::Backend> backend,
                                            const ServedModelUse& use, const LogLine& log) {
  DELTAFILL_TRY_ASSIGN(tokenizer, ReadTokenizerFile(source.directory));
  DELTAFILL_TRY_ASSIGN(range_tokens_max, PlanAndCheck(source, *backend, use, log));
  DELTAFILL_TRY_ASSIGN(model, LoadModel(source.directory, std::move(backend),
                                        {.random_seed = source.random_seed, .log = log}));
  ServedModel served;
  served.model = std::move(model);
  served.name = source.name.empty() ? LastComponent(source.directory) : source.name;
  if (source.random_seed.has_value()) {
    absl::StrAppend(&served.name, "-random-", *source.random_seed);
  }
  served.tokenizer = std::move(tokenizer);
  served.range_tokens_max = range_tokens_max;
  return served;
}

}  // namespace deltafill::worker
