#include "worker/runtime/memory_plan.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda/workspace_limits.h"
#include "worker/model/lane.h"
#include "worker/model/model_sizes.h"
#include "worker/model/state_layout.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/command_checks.h"
#include "worker/runtime/cost_probe.h"

namespace deltafill::worker {
namespace {

// A device hands out pieces of so much; large ones are cut from pages of their own.
constexpr uint64_t kPageBytes = uint64_t{2} << 20;
constexpr uint64_t kSmallBytes = 512;
// Descriptions, tokens and copies of rows that a lane's operators keep beside their workspaces.
constexpr uint64_t kLaneSmallBytes = uint64_t{8} << 20;
constexpr uint64_t kCodeBytes = uint64_t{128} << 20;  // loaded when it is first used; not reserved
// What ChooseRangeTokens chooses from.
constexpr int64_t kRangeTokensLeast = 4096;
constexpr int64_t kRangeTokensMost = 16384;
constexpr uint64_t kPromptTokensMax = uint64_t{1} << 22;

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

// Work of a lane: prefill calls of `rows`, and steps of `batch` sequences of up to `tokens`.
struct LaneWork {
  int64_t rows = 0;
  int64_t batch = 0;
  uint64_t tokens = 0;
};

// What the operators of one lane work in.
uint64_t OperatorBytes(const ModelConfig& config, const LaneWork& work) {
  kernels::DeltaRuleShape rule;
  rule.value_heads = static_cast<int>(config.kda_value_heads);
  rule.key_dim = static_cast<int>(config.kda_head_dim);
  rule.value_dim = static_cast<int>(config.kda_value_head_dim);
  uint64_t bytes = kLaneSmallBytes + kernels::cuda::kProductWorkspaceBytes +
                   kernels::cuda::RuleWorkspaceBytes(rule);
  if (config.HasLatentAttention()) {
    const LatentAttentionConfig& latent = config.latent;
    kernels::LatentShape shape;
    shape.heads = static_cast<int>(latent.heads);
    shape.nope_dim = static_cast<int>(latent.nope_dim);
    shape.rope_dim = static_cast<int>(latent.rope_dim);
    shape.value_dim = static_cast<int>(latent.value_dim);
    shape.rank = static_cast<int>(latent.rank);
    bytes += kernels::cuda::LatentPrefillWorkspaceBytes(shape, work.rows);
    if (work.batch > 0) {
      bytes += kernels::cuda::LatentStepWorkspaceBytes(shape, work.batch,
                                                       static_cast<int64_t>(work.tokens));
    }
  }
  if (config.HasExperts()) {
    const ExpertsConfig& experts = config.experts;
    kernels::MixtureShape shape;
    shape.experts = static_cast<int>(experts.count);
    shape.top_k = static_cast<int>(experts.per_token);
    shape.hidden = config.hidden_size;
    shape.expert_width = experts.width;
    bytes += kernels::cuda::MixtureWorkspaceBytes(shape, work.rows);
  }
  return bytes;
}

// Boundary states on their way in or out. Latents: a range takes with it what the ranges of all
// workers before it have written, one message a layer; there are those of the range at hand, of the
// ones given ahead, and some that go out.
uint64_t ExchangeBytes(const StateLayout& layout, int64_t range_tokens_max) {
  const LatentLayout& latents = layout.latents;
  const uint64_t rows = kExchangeWorkersPlanned * static_cast<uint64_t>(range_tokens_max);
  const uint64_t message = std::bit_ceil(rows * latents.RowBytes());
  const uint64_t layers = latents.layers.size();
  const uint64_t ranges = 1 + kRangesAheadPlanned;
  return UnreservedBytes(layout.bytes) +
         (layers == 0 ? 0 : ranges * layers * message + kMessagesOutPlanned * message);
}

// Of which a worker has room for the latents.
uint64_t LongestSequence(const LatentLayout& latents, size_t latent_bytes_max) {
  const uint64_t token_bytes = latents.layers.size() * latents.RowBytes();
  if (token_bytes == 0) return 0;
  return std::min<uint64_t>(kPromptTokensMax, latent_bytes_max / token_bytes);
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
  DELTAFILL_TRY(CheckWholeBlocks("range_tokens_max", worker.range_tokens_max));
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
      {"exchange", count * ExchangeBytes(layout, worker.range_tokens_max)},
  };
  if (config.HasLatentAttention()) {
    plan.items.push_back({"latents", count * worker.latent_bytes_max});
  }
  if (!device.is_host) {
    const LaneWork prefill{worker.range_tokens_max};
    const LaneWork decoding{worker.decode_rows_max, worker.decode_batch_max,
                            LongestSequence(layout.latents, worker.latent_bytes_max)};
    const LaneWork probe{CostProbeRows(worker.range_tokens_max, true)};
    plan.items.push_back(
        {"operators", count * (OperatorBytes(config, prefill) + OperatorBytes(config, decoding))});
    // Costs are measured once, on a lane that goes again.
    plan.items.push_back(
        {"start", lane_bytes(probe.rows) + OperatorBytes(config, probe) + kCodeBytes});
  }
  for (const MemoryItem& item : plan.items) plan.total_bytes += item.bytes;
  plan.reserved_bytes = plan.total_bytes - (device.is_host ? 0 : kCodeBytes);
  return plan;
}

absl::StatusOr<int64_t> ChooseRangeTokens(const ModelConfig& config, const DeviceMemory& device,
                                          const WorkerMemory& worker, int workers,
                                          uint64_t free_bytes) {
  int64_t tokens = device.is_host ? kRangeTokensLeast : kRangeTokensMost;
  for (; tokens > kRangeTokensLeast; tokens /= 2) {
    WorkerMemory tried = worker;
    tried.range_tokens_max = tokens;
    DELTAFILL_TRY_ASSIGN(plan, PlanMemory(config, device, tried, workers));
    if (plan.total_bytes <= free_bytes) break;
  }
  return tokens;
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
