#include "worker/runtime/memory_plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/latent_attention.h"
#include "worker/model/lane.h"
#include "worker/model/model_sizes.h"
#include "worker/model/state_layout.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/cost_probe.h"

namespace deltafill::worker {
namespace {

// cudaMalloc gives whole pages of 2 MiB, and parts of them for less than half of one.
constexpr uint64_t kPageBytes = uint64_t{2} << 20;
constexpr uint64_t kSmallBytes = 512;
// Bounds of what a lane's operators work in, whatever the model: the slots of the delta rule
// (kernels/cuda/plan.h, kWaveSlots) and the products' workspace.
constexpr int64_t kRuleScratchBytes = int64_t{290} << 20;
constexpr int64_t kLatentPagesExpanded = 4;  // at once (kernels/cuda/operators_latent_hopper.cc)
// Parts of the keys that a decoding step works on at once: those of the longest prompt.
constexpr int64_t kLatentPartsMax = (int64_t{1} << 22) / 512;
// Rows times experts a token that are copied at once (kernels/cuda/mixture_plan.h).
constexpr int64_t kMixtureChoicesMax = int64_t{1} << 17;
constexpr uint64_t kCodeBytes = uint64_t{128} << 20;  // loaded when it is first used

uint64_t Allocated(uint64_t bytes, const DeviceMemory& device) {
  if (device.is_host) return bytes;
  const uint64_t piece = bytes < kPageBytes / 2 ? kSmallBytes : kPageBytes;
  return (bytes + piece - 1) / piece * piece;
}

uint64_t WeightBytes(const ModelSizes& sizes, const DeviceMemory& device) {
  uint64_t bytes = 0;
  for (int64_t elements : sizes.matrices) {
    bytes +=
        Allocated(static_cast<uint64_t>(elements) * kernels::SizeOf(device.weight_dtype), device);
  }
  for (int64_t values : sizes.vectors) {
    bytes += Allocated(static_cast<uint64_t>(values) * sizeof(float), device);
  }
  return bytes;
}

// Of one lane of `rows`: keys and values of some pages of latents and the sums between them, or the
// parts' results of a step; the rows of each expert, and who they go to.
uint64_t OperatorBytes(const ModelConfig& config, int64_t rows) {
  int64_t bytes = kRuleScratchBytes;
  if (config.HasLatentAttention()) {
    const LatentAttentionConfig& latent = config.latent;
    const int64_t expanded =
        kLatentPagesExpanded * kernels::kLatentPageTokens *
        (latent.heads * (latent.nope_dim + latent.value_dim) + latent.rope_dim) * 2;
    const int64_t sums = rows * latent.heads * (latent.value_dim + 2) * 4;
    const int64_t parts = kLatentPartsMax * latent.heads * (latent.rank + 2) * 4;
    bytes += expanded + std::max(sums, parts);
  }
  if (config.HasExperts()) {
    const ExpertsConfig& experts = config.experts;
    const int64_t choices = std::min(rows * experts.per_token, kMixtureChoicesMax);
    const int64_t packed = choices * (config.hidden_size + experts.width) * 2;
    bytes += packed + rows * (experts.count * 4 + experts.per_token * 12);
  }
  return static_cast<uint64_t>(bytes);
}

std::string Size(uint64_t bytes) {
  constexpr double kMebibyte = 1 << 20;
  const double mebibytes = static_cast<double>(bytes) / kMebibyte;
  return mebibytes < 1024 ? absl::StrFormat("%.1f MiB", mebibytes)
                          : absl::StrFormat("%.2f GiB", mebibytes / 1024);
}

}  // namespace

std::string MemoryPlan::ToString() const {
  std::string text;
  for (const MemoryItem& item : items) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", item.name, " ", Size(item.bytes));
  }
  return absl::StrCat(text, ": ", Size(total_bytes));
}

absl::StatusOr<MemoryPlan> PlanMemory(const ModelConfig& config, const DeviceMemory& device,
                                      const WorkerMemory& worker, int workers) {
  DELTAFILL_TRY_ASSIGN(sizes, MeasureModel(config));
  const StateLayout layout = MakeStateLayout(config, device.activation_dtype);
  const uint64_t count = static_cast<uint64_t>(workers);
  const auto lane_bytes = [&](int64_t rows) {
    LaneSizes lane = sizes.lane;
    lane.rows_max = rows;
    return LaneBytes(lane, device.activation_dtype);
  };
  const uint64_t states = CapturedStates(worker.capture_bytes_max, layout.bytes) + kRangeStates;
  MemoryPlan plan;
  plan.items = {
      {"weights", WeightBytes(sizes, device)},
      {"prefill", count * lane_bytes(worker.range_tokens_max)},
      {"decoding", count * lane_bytes(worker.decode_rows_max)},
      {"states", count * states * Allocated(layout.bytes, device)},
      {"decoding states",
       count * DecodeStates(worker.decode_batch_max) * Allocated(layout.bytes, device)},
      {"exchange", count * UnreservedBytes(layout.bytes)},
  };
  if (config.HasLatentAttention()) {
    plan.items.push_back({"latents", count * worker.latent_bytes_max});
  }
  if (!device.is_host) {
    const int64_t probe_rows = CostProbeRows(worker.range_tokens_max, true);
    plan.items.push_back({"operators", count * (OperatorBytes(config, worker.range_tokens_max) +
                                                OperatorBytes(config, worker.decode_rows_max))});
    // Costs are measured once, on a lane that goes again.
    plan.items.push_back(
        {"start", lane_bytes(probe_rows) + OperatorBytes(config, probe_rows) + kCodeBytes});
  }
  for (const MemoryItem& item : plan.items) plan.total_bytes += item.bytes;
  return plan;
}

absl::Status CheckMemory(const MemoryPlan& plan, const kernels::MemoryReport& report) {
  if (plan.total_bytes <= report.free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the device has ", Size(report.total_bytes), ", ", Size(report.free_bytes),
                   " of them free, and this does not fit: ", plan.ToString(),
                   "; a smaller --range-tokens-max or --latent-budget takes less, and so do fewer "
                   "--workers"));
}

std::string DescribeUse(const kernels::MemoryReport& report) {
  return absl::StrCat(Size(report.total_bytes - report.free_bytes), " of ",
                      Size(report.total_bytes), " in use");
}

}  // namespace deltafill::worker
