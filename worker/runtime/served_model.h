// From a model directory and a device to what workers offer.
#ifndef DELTAFILL_WORKER_RUNTIME_SERVED_MODEL_H_
#define DELTAFILL_WORKER_RUNTIME_SERVED_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "worker/model/model.h"
#include "worker/runtime/memory_plan.h"

namespace deltafill::worker {

// A loaded model as workers offer it. Several workers of a process may share one.
struct ServedModel {
  std::shared_ptr<Model> model;
  std::string name;              // what callers ask for
  TokenizerFile tokenizer;       // kind "": token ids only
  int64_t range_tokens_max = 0;  // memory was planned for
};

struct ServedModelSource {
  std::string directory;
  std::string name;                     // "": the directory's last component
  std::optional<uint64_t> random_seed;  // see LoadOptions; "-random-SEED" is added to the name
  kernels::DType weight_dtype = kernels::DType::kF32;  // the backend's compute dtype
};

// The workers that the model is loaded for.
struct ServedModelUse {
  WorkerMemory memory;  // range_tokens_max 0: ChooseRangeTokens'
  int workers = 1;
};

// Plans the memory, writes the plan to `log` and refuses what does not fit before anything is
// loaded (RESOURCE_EXHAUSTED); then loads. Errors of LoadModel and ReadTokenizerFile. `log` may be
// empty.
absl::StatusOr<ServedModel> LoadServedModel(const ServedModelSource& source,
                                            std::shared_ptr<kernels::Backend> backend,
                                            const ServedModelUse& use, const LogLine& log);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_SERVED_MODEL_H_
