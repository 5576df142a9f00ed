#include "worker/runtime/cost_probe.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "worker/model/device_buffer.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kExchangeTries = 3;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Starts from zero, hands on into a scratch state, and notes when.
class TimingPort : public BoundaryPort {
 public:
  TimingPort(const StateLayout& layout, void* state, const LatentCache& latents)
      : layout_(layout),
        state_(static_cast<std::byte*>(state)),
        latents_(latents),
        layer_start_(Clock::now()) {}

  absl::StatusOr<const void*> Await(uint32_t, PartKind) override { return nullptr; }
  void* Outgoing(uint32_t layer, PartKind kind) override {
    const StateEntry* entry = layout_.Find(layer, kind);
    return entry == nullptr ? nullptr : state_ + entry->offset;
  }
  absl::Status HandOn(uint32_t, PartKind) override {
    handed_on_ = Clock::now();
    return absl::OkStatus();
  }
  void* Capture(int, uint32_t, PartKind) override { return nullptr; }
  absl::StatusOr<kernels::LatentSequence> Latents(uint32_t layer) override {
    return kernels::LatentSequence{latents_.Pages(layer), 0};
  }
  absl::Status ShareLatents(uint32_t) override {
    handed_on_ = Clock::now();
    return absl::OkStatus();
  }
  absl::Status TaskDone(uint32_t layer) override {
    const auto now = Clock::now();
    // The embedding comes before layer 0 without a mark: leave that layer out if there are others.
    if (layer == 1) layer_s_ = before_handover_s_ = layers_ = 0;
    layer_s_ += Seconds(now - layer_start_);
    before_handover_s_ += Seconds(handed_on_ - layer_start_);
    ++layers_;
    layer_start_ = now;
    return absl::OkStatus();
  }

  double layer_s() const { return layers_ == 0 ? 0 : layer_s_ / layers_; }
  double handover_fraction() const {
    return layer_s_ <= 0 ? 1 : std::clamp(before_handover_s_ / layer_s_, 0.0, 1.0);
  }

 private:
  const StateLayout& layout_;
  std::byte* const state_;
  const LatentCache& latents_;
  Clock::time_point layer_start_;
  Clock::time_point handed_on_ = layer_start_;
  double layer_s_ = 0;
  double before_handover_s_ = 0;
  int layers_ = 0;
};

struct RangeTimes {
  double total_s = 0;
  double layer_s = 0;  // mean
  double handover_fraction = 0;
};

class RangeTimer {
 public:
  RangeTimer(Model& model, Lane& lane, void* state)
      : model_(model),
        lane_(lane),
        state_(state),
        latents_(&model.backend(), &model.state_layout().latents) {}

  absl::StatusOr<RangeTimes> Run(int64_t token_count) {
    std::vector<uint32_t> tokens(static_cast<size_t>(token_count));
    const uint32_t vocabulary = static_cast<uint32_t>(model_.config().vocab_size);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i) % vocabulary;
    std::vector<float> logits(vocabulary);
    DELTAFILL_TRY(latents_.Reserve(token_count));
    const auto start = Clock::now();
    TimingPort port(model_.state_layout(), state_, latents_);
    const RangeWork work{tokens, {}, &port};
    DELTAFILL_TRY(model_.Prefill(lane_, {&work, 1}));
    DELTAFILL_TRY(model_.LastLogits(lane_, logits));
    return RangeTimes{Seconds(Clock::now() - start), port.layer_s(), port.handover_fraction()};
  }

 private:
  Model& model_;
  Lane& lane_;
  void* const state_;
  LatentCache latents_;
};

absl::StatusOr<double> MeasureExchange(const StateLayout& layout, BoundaryExchange& exchange,
                                       const ExchangeTarget& target) {
  if (layout.entries.empty()) return 0.0;
  const uint32_t layer = layout.entries.front().layer;
  const AttemptKey attempt{std::numeric_limits<uint64_t>::max(), 1};
  double best_s = std::numeric_limits<double>::infinity();
  for (uint32_t range = 0; range < kExchangeTries; ++range) {
    DELTAFILL_TRY(exchange.Reserve(attempt, range));
    const auto start = Clock::now();
    for (const StateEntry& entry : layout.entries) {
      if (entry.layer != layer) continue;
      const std::vector<std::byte> bytes(entry.bytes);
      DELTAFILL_TRY(exchange.Publish({attempt, range, layer, entry.kind}, bytes, {&target, 1}));
    }
    for (const StateEntry& entry : layout.entries) {
      if (entry.layer != layer) continue;
      DELTAFILL_TRY(exchange.Await({attempt, range, layer, entry.kind}).status());
    }
    best_s = std::min(best_s, Seconds(Clock::now() - start));
    exchange.Release(attempt, range);
  }
  exchange.AbortAll();
  return best_s;
}

}  // namespace

absl::StatusOr<CostConstants> MeasureCosts(Model& model, BoundaryExchange& exchange,
                                           const ExchangeTarget& target,
                                           const CostProbeOptions& options) {
  const int64_t rows_max = std::min<int64_t>(options.range_tokens_max, 1024);
  DELTAFILL_TRY_ASSIGN(lane, model.NewLane(options.threads, rows_max));
  DELTAFILL_TRY_ASSIGN(state, DeviceBuffer::Allocate(model.backend(), model.state_layout().bytes));
  RangeTimer timer(model, *lane, state.get());

  const int64_t block = kBlockTokenCount;
  DELTAFILL_TRY_ASSIGN(first, timer.Run(block));  // also warms up
  RangeTimes one_block = first;
  RangeTimes many = first;
  int64_t many_tokens = block;
  if (first.total_s < options.budget_s / 4) {
    DELTAFILL_TRY_ASSIGN(second, timer.Run(block));
    one_block = many = second;
    while (2 * many_tokens <= rows_max && second.total_s * static_cast<double>(2 * many_tokens) <
                                              options.budget_s / 2 * static_cast<double>(block)) {
      many_tokens *= 2;
    }
    if (many_tokens > block) {
      DELTAFILL_TRY_ASSIGN(longest, timer.Run(many_tokens));
      many = longest;
    }
  }
  CostConstants costs;
  if (many_tokens > block && many.layer_s > one_block.layer_s) {
    costs.layer_token_s =
        (many.layer_s - one_block.layer_s) / static_cast<double>(many_tokens - block);
    costs.layer_fixed_s =
        std::max(0.0, one_block.layer_s - static_cast<double>(block) * costs.layer_token_s);
  } else {
    costs.layer_token_s = many.layer_s / static_cast<double>(many_tokens);
  }
  const double layers = static_cast<double>(model.config().layers.size());
  costs.range_fixed_s = std::max(0.0, many.total_s - layers * many.layer_s);
  costs.handover_fraction = many.handover_fraction;
  DELTAFILL_TRY_ASSIGN(exchange_s, MeasureExchange(model.state_layout(), exchange, target));
  costs.exchange_s = exchange_s;
  return costs;
}

}  // namespace deltafill::worker
