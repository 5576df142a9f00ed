// The grid of tasks (range, layer) of one prompt and its cost model. Where a task runs (placement)
// is kept apart from the grid, so that another placement can be priced with the same arithmetic.
//
// Task (r, l) needs task (r, l - 1) of its own range, and of range r - 1 the boundary state of
// layer l.
#ifndef DELTAFILL_COORDINATOR_PLANNER_GRID_H_
#define DELTAFILL_COORDINATOR_PLANNER_GRID_H_

#include <cstdint>
#include <span>
#include <vector>

namespace deltafill::coordinator {

// Layers of attention, as measured by a worker: a range of n tokens after p others takes
// fixed_s + n * token_s + (p + n) * key_s + n * (p + n / 2) * pair_s. They hand on as soon as the
// range's own latents are made and those before have come.
struct AttentionCosts {
  double fixed_s = 0.0;
  double token_s = 0.0;
  double pair_s = 0.0;             // a query and a key
  double handover_fraction = 1.0;  // of fixed_s + n * token_s, after which its latents are made
  double row_exchange_s = 0.0;     // the latents of one token to another worker
  double key_s = 0.0;              // a key that is seen, own and earlier: expanding its latents
  double exchange_s = 0.0;         // beside that: one message, whatever its rows
};

// Measured by a worker at start: a range of n tokens takes layer_fixed_s + n * layer_token_s at a
// layer with a recurrent state.
struct WorkerCosts {
  double layer_fixed_s = 0.0;
  double layer_token_s = 0.0;
  double range_fixed_s = 0.0;      // embedding, logits, starting a range
  double handover_fraction = 1.0;  // of a layer's time after which its boundary state is handed on
  double exchange_s = 0.0;         // one boundary state of such a layer to another worker
  AttentionCosts attention;        // models with attention layers only
};

// The layers of a model.
struct LayerStack {
  // Implicit: so many layers, all with recurrent states but for those named (ascending).
  LayerStack(uint32_t layers, std::span<const uint32_t> attention_layers = {});  // NOLINT

  uint32_t count = 0;
  uint32_t attention_count = 0;
  std::vector<bool> is_attention;  // a layer
};

// A run of consecutive blocks that one worker processes at once; only the last may end inside a
// block.
struct TokenRange {
  uint64_t first_token = 0;  // a multiple of 64
  uint64_t token_count = 0;  // at least 1
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// A worker as the planner sees it.
struct WorkerSlot {
  WorkerCosts costs;
  uint64_t range_tokens_max = 0;  // at least 64
  double queued_s = 0.0;          // work it was given and has not finished
};

// Runs of whole ranges: every worker takes its ranges in ascending order, each through all layers.
// Start of task (r, l): when its worker is free and the boundary state has arrived. A boundary
// state leaves handover_fraction of the way through its task and takes exchange_s to another
// worker. A task of attention starts without it, and awaits it when its own latents are made; what
// it hands on are all rows that the next worker lacks.
struct GridTimes {
  double finish_s = 0.0;  // of the last task
  double busy_s = 0.0;    // sum over tasks and range starts
};

// placement[r] indexes slots. O(ranges * layers) time, O(layers + slots) memory.
GridTimes SimulateGrid(std::span<const TokenRange> ranges, std::span<const uint32_t> placement,
                       std::span<const WorkerSlot> slots, const LayerStack& layers);

// Seconds of one range on a worker that waits for nothing.
double RangeSeconds(const WorkerCosts& costs, const TokenRange& range, const LayerStack& layers);

// [first_token, end_token) in ranges of range_tokens (a multiple of 64). A rest of at most one
// block (the tail) joins the range before it if that stays within range_tokens_max.
std::vector<TokenRange> CutRanges(uint64_t first_token, uint64_t end_token, uint64_t range_tokens,
                                  uint64_t range_tokens_max);

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_PLANNER_GRID_H_
