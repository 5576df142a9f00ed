// What a model will take of a device's memory, from its configuration alone: by loading it from
// nothing.
#ifndef DELTAFILL_WORKER_MODEL_MODEL_SIZES_H_
#define DELTAFILL_WORKER_MODEL_MODEL_SIZES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/tensor.h"
#include "worker/model/config.h"
#include "worker/model/lane.h"

namespace deltafill::worker {

struct ModelSizes {
  std::vector<int64_t> matrices;  // elements of each weight
  std::vector<int64_t> vectors;   // fp32 values of each buffer
  LaneSizes lane;                 // of one row: set rows_max
};

// Pure; no weights are made.
absl::StatusOr<ModelSizes> MeasureModel(const ModelConfig& config);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_MODEL_SIZES_H_
