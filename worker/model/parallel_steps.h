// Steps of loading that are independent of each other, on several threads.
#ifndef DELTAFILL_WORKER_MODEL_PARALLEL_STEPS_H_
#define DELTAFILL_WORKER_MODEL_PARALLEL_STEPS_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace deltafill::worker {

// Runs step(0) ... step(count - 1), each once, on at most 32 threads (the machine's number), this
// one included. Returns the error of the lowest step that failed; no step starts after an error
// was seen.
absl::Status RunParallelSteps(int64_t count, const std::function<absl::Status(int64_t)>& step);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_PARALLEL_STEPS_H_
