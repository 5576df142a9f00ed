#include "worker/runtime/cost_probe.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>
#include <vector>

#include "absl/strings/str_format.h"
#include "worker/model/device_buffer.h"
#include "worker/model/lane.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kExchangeTries = 3;
// The quickest counts: others were disturbed, or the first to touch their memory.
constexpr int kBlockTries = 3;
constexpr int kManyTries = 3;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Means over the layers of one kind.
struct LayerTimes {
  double whole_s = 0;
  double before_handover_s = 0;
  int layers = 0;

  void Add(double whole, double before_handover) {
    whole_s += (whole - whole_s) / (layers + 1);
    before_handover_s += (before_handover - before_handover_s) / (layers + 1);
    ++layers;
  }
  double HandoverFraction() const {
    return whole_s <= 0 ? 1 : std::clamp(before_handover_s / whole_s, 0.0, 1.0);
  }
};

// Hands on into a scratch state, and notes when. Starts from zero, but for latents, which are those
// of the ranges that were run before. Waits for the lane wherever it looks at the clock.
class TimingPort : public BoundaryPort {
 public:
  TimingPort(const StateLayout& layout, kernels::Operators& operators, void* state,
             const LatentCache& latents, int64_t first_token)
      : layout_(layout),
        operators_(operators),
        state_(static_cast<std::byte*>(state)),
        latents_(latents),
        first_token_(first_token),
        layer_start_(Clock::now()) {}

  absl::StatusOr<const void*> Await(uint32_t, PartKind) override { return nullptr; }
  void* Outgoing(uint32_t layer, PartKind kind) override {
    const StateEntry* entry = layout_.Find(layer, kind);
    return entry == nullptr ? nullptr : state_ + entry->offset;
  }
  absl::Status HandOn(uint32_t, PartKind) override {
    DELTAFILL_TRY(operators_.Synchronize());
    handed_on_ = Clock::now();
    return absl::OkStatus();
  }
  void* Capture(int, uint32_t, PartKind) override { return nullptr; }
  absl::StatusOr<kernels::LatentSequence> Latents(uint32_t layer) override {
    return kernels::LatentSequence{latents_.Pages(layer), first_token_};
  }
  absl::Status ShareLatents(uint32_t) override { return HandOn(0, PartKind::kLatent); }
  absl::Status TaskDone(uint32_t layer) override {
    DELTAFILL_TRY(operators_.Synchronize());
    const auto now = Clock::now();
    LayerTimes& times =
        layout_.Find(layer, PartKind::kRecurrent) != nullptr ? recurrent : attention;
    // The embedding comes before layer 0 without a mark: leave that layer out if there are others.
    if (layer == 1) recurrent = LayerTimes();
    const double whole_s = Seconds(now - layer_start_);
    times.Add(whole_s, Seconds(handed_on_ - layer_start_));
    layer_start_ = now;
    return absl::OkStatus();
  }

  LayerTimes recurrent;
  LayerTimes attention;

 private:
  const StateLayout& layout_;
  kernels::Operators& operators_;
  std::byte* const state_;
  const LatentCache& latents_;
  const int64_t first_token_;
  Clock::time_point layer_start_;
  Clock::time_point handed_on_ = layer_start_;
};

struct RangeTimes {
  double total_s = 0;
  double layers_s = 0;  // of all of them, from the means
  LayerTimes recurrent;
  LayerTimes attention;
};

class RangeTimer {
 public:
  RangeTimer(Model& model, Lane& lane, void* state)
      : model_(model),
        lane_(lane),
        state_(state),
        latents_(&model.backend(), &model.state_layout().latents) {}

  // Of so many tries, or of those that begin before `budget_s` is over.
  absl::StatusOr<RangeTimes> Quickest(int tries, double budget_s, int64_t token_count,
                                      int64_t first_token = 0) {
    const auto start = Clock::now();
    DELTAFILL_TRY_ASSIGN(best, Run(token_count, first_token));
    for (int i = 1; i < tries && Seconds(Clock::now() - start) < budget_s; ++i) {
      DELTAFILL_TRY_ASSIGN(next, Run(token_count, first_token));
      if (next.total_s < best.total_s) best = next;
    }
    return best;
  }

  absl::StatusOr<RangeTimes> Run(int64_t token_count, int64_t first_token = 0) {
    std::vector<uint32_t> tokens(static_cast<size_t>(token_count));
    const uint32_t vocabulary = static_cast<uint32_t>(model_.config().vocab_size);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i) % vocabulary;
    std::vector<float> logits(vocabulary);
    DELTAFILL_TRY(latents_.Reserve(first_token + token_count));
    const auto start = Clock::now();
    TimingPort port(model_.state_layout(), lane_.operators(), state_, latents_, first_token);
    const RangeWork work{tokens, {}, &port};
    DELTAFILL_TRY(model_.Prefill(lane_, {&work, 1}));
    DELTAFILL_TRY(model_.LastLogits(lane_, logits));
    const double attention_layers = static_cast<double>(latents_.layout().layers.size());
    const double layers = static_cast<double>(model_.config().layers.size());
    const double layers_s = (layers - attention_layers) * port.recurrent.whole_s +
                            attention_layers * port.attention.whole_s;
    return RangeTimes{Seconds(Clock::now() - start), layers_s, port.recurrent, port.attention};
  }

 private:
  Model& model_;
  Lane& lane_;
  void* const state_;
  LatentCache latents_;
};

// One block and many tokens, at the start and after many tokens. The block shows what a key costs,
// the many what a pair does.
struct AttentionTimes {
  LayerTimes block;
  LayerTimes many;
  LayerTimes later_block;
  LayerTimes later_many;
};

AttentionCosts FitAttention(const AttentionTimes& times, double many_tokens) {
  const double block = kBlockTokenCount;
  AttentionCosts costs;
  if (many_tokens <= block) {
    costs.token_s = times.block.whole_s / block;
    costs.handover_fraction = times.block.HandoverFraction();
    return costs;
  }
  // many_tokens keys more: many_tokens * (key_s + rows * pair_s).
  const double block_more_s = std::max(0.0, times.later_block.whole_s - times.block.whole_s);
  const double many_more_s = std::max(block_more_s, times.later_many.whole_s - times.many.whole_s);
  costs.pair_s = (many_more_s - block_more_s) / (many_tokens * (many_tokens - block));
  costs.key_s = std::max(0.0, block_more_s / many_tokens - block * costs.pair_s);
  const auto without_keys = [&](double whole_s, double tokens) {
    return std::max(0.0, whole_s - tokens * costs.key_s - tokens * tokens / 2 * costs.pair_s);
  };
  const double one_s = without_keys(times.block.whole_s, block);
  const double many_s = without_keys(times.many.whole_s, many_tokens);
  costs.token_s = std::max(0.0, (many_s - one_s) / (many_tokens - block));
  costs.fixed_s = std::max(0.0, one_s - block * costs.token_s);
  const double projections_s = costs.fixed_s + many_tokens * costs.token_s;
  if (projections_s > 0) {
    costs.handover_fraction = std::clamp(times.many.before_handover_s / projections_s, 0.0, 1.0);
  }
  return costs;
}

// Memory of the model's to hand on, whatever is in it; lanes have no work in it.
absl::StatusOr<DeviceBuffer> MakeMessage(kernels::Backend& backend, kernels::Operators& operators,
                                         size_t bytes) {
  DELTAFILL_TRY_ASSIGN(buffer, DeviceBuffer::Allocate(backend, bytes));
  DELTAFILL_TRY(operators.FillZero(buffer.get(), bytes));
  DELTAFILL_TRY(operators.Synchronize());
  return std::move(buffer);
}

StateView ViewOf(const kernels::Backend& backend, const DeviceBuffer& message, size_t bytes) {
  return {static_cast<const std::byte*>(message.get()), bytes, backend.is_host_memory()};
}

// One boundary state of a layer on its way.
struct ProbeMessage {
  uint32_t layer = 0;
  PartKind kind = PartKind::kRecurrent;
  StateView view;
};

// Seconds from handing on all messages until all have come, the best of `tries`. Attempts of
// different probes have numbers of their own.
absl::StatusOr<double> TimeMessages(BoundaryExchange& exchange, const ExchangeTarget& target,
                                    uint32_t attempt_number, uint32_t tries,
                                    std::span<const ProbeMessage> messages) {
  const AttemptKey attempt{std::numeric_limits<uint64_t>::max(), attempt_number};
  double best_s = std::numeric_limits<double>::infinity();
  for (uint32_t range = 0; range < tries; ++range) {
    DELTAFILL_TRY(exchange.Reserve(attempt, range));
    const auto start = Clock::now();
    for (const ProbeMessage& m : messages) {
      DELTAFILL_TRY(exchange.Publish({attempt, range, m.layer, m.kind}, m.view, {&target, 1}));
    }
    for (const ProbeMessage& m : messages) {
      DELTAFILL_TRY(exchange.Await({attempt, range, m.layer, m.kind}).status());
    }
    best_s = std::min(best_s, Seconds(Clock::now() - start));
    exchange.Release(attempt, range);
  }
  exchange.AbortAll();
  return best_s;
}

// Of a message with one row and of one with many.
absl::Status MeasureRowExchange(Model& model, Lane& lane, BoundaryExchange& exchange,
                                const ExchangeTarget& target, AttentionCosts* costs) {
  const LatentLayout& layout = model.state_layout().latents;
  constexpr size_t kRows = 1024;
  DELTAFILL_TRY_ASSIGN(rows,
                       MakeMessage(model.backend(), lane.operators(), kRows * layout.RowBytes()));
  double seconds[2];
  for (const bool many : {false, true}) {
    const size_t bytes = (many ? kRows : 1) * layout.RowBytes();
    const ProbeMessage message{layout.layers.front(), PartKind::kLatent,
                               ViewOf(model.backend(), rows, bytes)};
    DELTAFILL_TRY_ASSIGN(
        message_s, TimeMessages(exchange, target, many ? 3 : 2, kExchangeTries, {&message, 1}));
    seconds[many ? 1 : 0] = message_s;
  }
  costs->row_exchange_s = std::max(0.0, seconds[1] - seconds[0]) / (kRows - 1);
  costs->exchange_s = std::max(0.0, seconds[0] - costs->row_exchange_s);
  return absl::OkStatus();
}

// The messages that a layer with a recurrence hands on.
std::vector<StateEntry> RecurrentMessages(const StateLayout& layout) {
  std::vector<StateEntry> messages;
  for (const StateEntry& entry : layout.entries) {
    if (entry.layer == layout.entries.front().layer) messages.push_back(entry);
  }
  return messages;
}

absl::StatusOr<double> MeasureExchange(Model& model, Lane& lane, BoundaryExchange& exchange,
                                       const ExchangeTarget& target) {
  const StateLayout& layout = model.state_layout();
  DELTAFILL_TRY_ASSIGN(state, MakeMessage(model.backend(), lane.operators(), layout.bytes));
  std::vector<ProbeMessage> messages;
  for (const StateEntry& entry : RecurrentMessages(layout)) {
    messages.push_back({entry.layer, entry.kind, ViewOf(model.backend(), state, entry.bytes)});
  }
  return TimeMessages(exchange, target, 1, kExchangeTries, messages);
}

}  // namespace

int64_t ComparedTokens(double block_s, int64_t rows_max, bool on_device, double budget_s) {
  if (on_device) return rows_max / kBlockTokenCount * kBlockTokenCount;
  int64_t tokens = kBlockTokenCount;
  const double limit = budget_s / (2 * kManyTries) * static_cast<double>(kBlockTokenCount);
  while (2 * tokens <= rows_max && block_s * static_cast<double>(2 * tokens) < limit) tokens *= 2;
  return tokens;
}

std::string DescribeCosts(const CostConstants& costs) {
  constexpr double kMicro = 1e6;
  std::string text = absl::StrFormat(
      "a range %.0f us; a recurrent layer %.1f us and %.4f us a token, hands on after %.0f %%; to "
      "another worker %.0f us",
      costs.range_fixed_s * kMicro, costs.layer_fixed_s * kMicro, costs.layer_token_s * kMicro,
      100 * costs.handover_fraction, costs.exchange_s * kMicro);
  const AttentionCosts& attention = costs.attention;
  if (attention.handover_fraction > 0) {
    absl::StrAppendFormat(
        &text,
        "; an attention layer %.1f us, %.4f us a token, %.4f us a key and %.3g us a pair, hands on "
        "after %.0f %%; to another worker %.0f us and %.4f us a row",
        attention.fixed_s * kMicro, attention.token_s * kMicro, attention.key_s * kMicro,
        attention.pair_s * kMicro, 100 * attention.handover_fraction, attention.exchange_s * kMicro,
        attention.row_exchange_s * kMicro);
  }
  return text;
}

absl::Status AddAnnouncements(const StateLayout& layout, BoundaryExchange& exchange,
                              const ExchangeTarget& target, CostConstants* costs) {
  const std::vector<StateEntry> messages = RecurrentMessages(layout);
  const StateEntry& smallest =
      *std::min_element(messages.begin(), messages.end(),
                        [](const StateEntry& a, const StateEntry& b) { return a.bytes < b.bytes; });
  std::vector<std::byte> bytes(smallest.bytes);
  ProbeMessage message{smallest.layer, smallest.kind, OnHost(bytes)};
  if (!layout.latents.layers.empty()) {
    bytes.resize(layout.latents.RowBytes());
    message = {layout.latents.layers.front(), PartKind::kLatent, OnHost(bytes)};
  }
  DELTAFILL_TRY_ASSIGN(message_s, TimeMessages(exchange, target, 4, kExchangeTries, {&message, 1}));
  costs->exchange_s += static_cast<double>(messages.size()) * message_s;
  if (!layout.latents.layers.empty()) costs->attention.exchange_s += message_s;
  return absl::OkStatus();
}

absl::StatusOr<CostConstants> MeasureCosts(Model& model, BoundaryExchange& exchange,
                                           const ExchangeTarget& target,
                                           const CostProbeOptions& options) {
  const bool on_device = !model.backend().is_host_memory();
  const int64_t rows_max = CostProbeRows(options.range_tokens_max, on_device);
  DELTAFILL_TRY_ASSIGN(lane, model.NewLane(options.threads, rows_max));
  DELTAFILL_TRY_ASSIGN(state, DeviceBuffer::Allocate(model.backend(), model.state_layout().bytes));
  RangeTimer timer(model, *lane, state.get());

  const int64_t block = kBlockTokenCount;
  // A device's first long range makes the lane's workspaces.
  if (on_device) DELTAFILL_TRY(timer.Run(rows_max).status());
  DELTAFILL_TRY(timer.Run(block).status());  // warms up
  const double tries_s = options.budget_s / 2;
  DELTAFILL_TRY_ASSIGN(one_block, timer.Quickest(kBlockTries, tries_s, block));
  RangeTimes many = one_block;
  int64_t many_tokens = block;
  if (on_device || one_block.total_s < options.budget_s / 4) {
    many_tokens = ComparedTokens(one_block.total_s, rows_max, on_device, options.budget_s);
    if (many_tokens > block) {
      DELTAFILL_TRY_ASSIGN(longest, timer.Quickest(kManyTries, tries_s, many_tokens));
      many = longest;
    }
  }
  CostConstants costs;
  const double one_s = one_block.recurrent.whole_s;
  const double many_s = many.recurrent.whole_s;
  if (many_tokens > block && many_s > one_s) {
    costs.layer_token_s = (many_s - one_s) / static_cast<double>(many_tokens - block);
    costs.layer_fixed_s = std::max(0.0, one_s - static_cast<double>(block) * costs.layer_token_s);
  } else {
    costs.layer_token_s = many_s / static_cast<double>(many_tokens);
  }
  costs.range_fixed_s = std::max(0.0, many.total_s - many.layers_s);
  costs.handover_fraction = many.recurrent.HandoverFraction();
  DELTAFILL_TRY_ASSIGN(exchange_s, MeasureExchange(model, *lane, exchange, target));
  costs.exchange_s = exchange_s;
  const LatentLayout& latents = model.state_layout().latents;
  if (latents.layers.empty()) return costs;
  AttentionTimes times{one_block.attention, many.attention, {}, {}};
  if (many_tokens > block) {
    DELTAFILL_TRY_ASSIGN(later_block, timer.Quickest(kBlockTries, tries_s, block, many_tokens));
    DELTAFILL_TRY_ASSIGN(later_many, timer.Quickest(kManyTries, tries_s, many_tokens, many_tokens));
    times.later_block = later_block.attention;
    times.later_many = later_many.attention;
  }
  costs.attention = FitAttention(times, static_cast<double>(many_tokens));
  DELTAFILL_TRY(MeasureRowExchange(model, *lane, exchange, target, &costs.attention));
  return costs;
}

}  // namespace deltafill::worker
