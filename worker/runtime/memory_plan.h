// What workers will take of a device's memory, computed before anything is allocated.
#ifndef DELTAFILL_WORKER_RUNTIME_MEMORY_PLAN_H_
#define DELTAFILL_WORKER_RUNTIME_MEMORY_PLAN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/operators.h"
#include "worker/model/config.h"

namespace deltafill::worker {

// Sizes that lanes, exchange and plan share. Prefix states that a worker has room for: captured
// ones; what a range starts from and what it hands on; of each decoding two, one more whose saving
// is under way, and a scratch.
inline size_t CapturedStates(size_t capture_bytes_max, size_t state_bytes) {
  return std::max<size_t>(capture_bytes_max / std::max<size_t>(state_bytes, 1), 2);
}
inline constexpr size_t kRangeStates = 2;
inline size_t DecodeStates(int decode_batch_max) {
  return 3 * static_cast<size_t>(decode_batch_max) + 1;
}
// Boundary states that came in before they were asked for.
inline size_t UnreservedBytes(size_t state_bytes) {
  return std::max<size_t>(size_t{256} << 20, 16 * state_bytes);
}

// What is planned for latents between workers; where there is more, the device gives more. Workers
// of a prompt, ranges that a worker is given ahead (the scheduler's ranges_queued_max), and
// messages that go out at a time.
inline constexpr uint64_t kExchangeWorkersPlanned = 8;
inline constexpr uint64_t kRangesAheadPlanned = 2;
inline constexpr uint64_t kMessagesOutPlanned = 4;

// As WorkerSetup has them.
struct WorkerMemory {
  int64_t range_tokens_max = 0;  // a multiple of 64
  int64_t decode_rows_max = 0;
  int decode_batch_max = 0;
  size_t capture_bytes_max = 0;
  size_t latent_bytes_max = 0;  // counts for models with attention layers
};

// How a device keeps things.
struct DeviceMemory {
  kernels::DType weight_dtype = kernels::DType::kF32;
  kernels::DType activation_dtype = kernels::DType::kF32;
  // A device allocates in pieces, and its operators work in memory of their own.
  bool is_host = true;
};

struct MemoryItem {
  std::string name;
  uint64_t bytes = 0;
};

struct MemoryPlan {
  std::vector<MemoryItem> items;
  uint64_t total_bytes = 0;
  uint64_t reserved_bytes = 0;  // of the total: taken at the start, all at once

  // "weights 2.59 GiB, prefill 328.0 MiB, ...: 4.12 GiB"
  std::string ToString() const;
};

// Of `workers` workers that share one model on one device. INVALID_ARGUMENT for lengths of ranges
// that are no multiple of 64. Pure.
absl::StatusOr<MemoryPlan> PlanMemory(const ModelConfig& config, const DeviceMemory& device,
                                      const WorkerMemory& worker, int workers);

// The tokens of a range where nobody says how many. A card's products are at their best rate from
// 16,384 rows on (tests/bench/results/service-h200.md), a CPU's long before 4,096. A card with
// little free gets less, down to 4,096, so that the plan fits. worker.range_tokens_max is ignored.
// Pure.
absl::StatusOr<int64_t> ChooseRangeTokens(const ModelConfig& config, const DeviceMemory& device,
                                          const WorkerMemory& worker, int workers,
                                          uint64_t free_bytes);

// RESOURCE_EXHAUSTED with every item if the plan is over what is free.
absl::Status CheckMemory(const MemoryPlan& plan, const kernels::MemoryReport& report);

// "4.93 GiB of 139.80 GiB in use": by everybody who uses the device.
std::string DescribeUse(const kernels::MemoryReport& report);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_MEMORY_PLAN_H_
