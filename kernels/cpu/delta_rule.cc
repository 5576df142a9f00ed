#include "kernels/cpu/delta_rule.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/delta_rule_head.h"
#include "kernels/cpu/delta_rule_validation.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace deltafill::kernels::cpu {
namespace {

// Denormals count as 0 while in scope: decayed values pass through them and would cost hundreds of
// cycles each.
class FlushDenormals {
 public:
#if defined(__SSE2__)
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero); }
  ~FlushDenormals() { _mm_setcsr(saved_); }

 private:
  static constexpr unsigned kFlushToZero = 0x8000;
  static constexpr unsigned kDenormalsAreZero = 0x0040;
  unsigned saved_;
#else
  FlushDenormals() {}
  ~FlushDenormals() {}

 public:
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
};

// This thread's scratch, or nullptr if there is no memory for it.
BlockScratch* ThreadScratch() {
  thread_local std::unique_ptr<BlockScratch> scratch;
  if (scratch == nullptr) scratch.reset(new (std::nothrow) BlockScratch);
  return scratch.get();
}

// Calls run(index, scratch) for each index on the team's threads.
template <typename Run>
Status RunOnTeam(ThreadTeam& team, int64_t count, Run&& run) {
  std::atomic<bool> out_of_memory{false};
  team.ParallelFor(count, [&](int64_t index, int) {
    BlockScratch* scratch = ThreadScratch();
    if (scratch == nullptr) {
      out_of_memory.store(true, std::memory_order_relaxed);
      return;
    }
    FlushDenormals flush;
    run(index, *scratch);
  });
  if (!out_of_memory.load(std::memory_order_relaxed)) return {};
  return {StatusCode::kResourceExhausted, "delta rule: no memory for a thread's scratch of " +
                                              std::to_string(sizeof(BlockScratch)) + " bytes"};
}

const float* At(const ConstRows& rows, int64_t row, int64_t column) {
  return static_cast<const float*>(rows.data) + row * rows.row_stride + column;
}

DeltaRuleShape Resolved(const DeltaRuleShape& shape) {
  DeltaRuleShape resolved = shape;
  if (resolved.query_scale == 0.0f) {
    resolved.query_scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  }
  return resolved;
}

bool IsPreactivated(GateKind gate) {
  return gate == GateKind::kScalarPreactivated || gate == GateKind::kChannelPreactivated;
}

// e^x within 2 ulp, our own so that bits depend on no libm: x = n ln 2 + r, Taylor to r^13.
double ExpOfDouble(double x) {
  constexpr double kLn2High = 0x1.62e42fefa3800p-1;
  constexpr double kLn2Low = 0x1.ef35793c76730p-45;
  const double bounded = std::fmin(std::fmax(x, -700.0), 700.0);
  const double n = std::floor(bounded * kLog2E + 0.5);
  const double r = bounded - n * kLn2High - n * kLn2Low;
  double sum = 1.0;
  for (int i = 13; i >= 1; --i) sum = 1.0 + sum * r / i;
  return std::isnan(x) ? x : std::ldexp(sum, static_cast<int>(n));
}

void SetGateScale(const DeltaRuleShape& shape, const DeltaRuleInputs& in, int head,
                  HeadRows& rows) {
  switch (shape.gate) {
    case GateKind::kScalarSoftplus:
    case GateKind::kChannelSoftplus:
      rows.gate_scale = -kLog2E * ExpOfDouble(in.a_log[head]);
      break;
    case GateKind::kChannelLowerBound:
      rows.gate_scale = kLog2E * shape.lower_bound;
      rows.gate_rate = static_cast<float>(ExpOfDouble(in.a_log[head]));
      break;
    default:
      rows.gate_scale = kLog2E;
  }
}

// Value head `head`'s columns from row `row` on.
HeadRows RowsOfHead(const DeltaRuleShape& shape, const DeltaRuleInputs& in, int64_t row, int head,
                    bool reads_q) {
  const int64_t key_column =
      static_cast<int64_t>(head / (shape.value_heads / shape.heads)) * shape.key_dim;
  const int64_t value_column = static_cast<int64_t>(head) * shape.value_dim;
  const bool scalar =
      shape.gate == GateKind::kScalarSoftplus || shape.gate == GateKind::kScalarPreactivated;
  const int64_t gate_column = static_cast<int64_t>(head) * (scalar ? 1 : shape.key_dim);
  HeadRows rows;
  if (reads_q) {
    rows.q = At(in.q, row, key_column);
    rows.q_stride = in.q.row_stride;
  }
  rows.k = At(in.k, row, key_column);
  rows.k_stride = in.k.row_stride;
  rows.v = At(in.v, row, value_column);
  rows.v_stride = in.v.row_stride;
  if (shape.gate != GateKind::kNone) {
    rows.f = At(in.f, row, gate_column);
    rows.f_stride = in.f.row_stride;
    rows.f_width = scalar ? 1 : shape.key_dim;
    if (!IsPreactivated(shape.gate) && in.dt_bias != nullptr) {
      rows.dt_bias = in.dt_bias + gate_column;
    }
    SetGateScale(shape, in, head, rows);
  }
  if (shape.write == WriteRule::kDelta) {
    rows.beta = At(in.beta, row, head);
    rows.beta_stride = in.beta.row_stride;
  }
  return rows;
}

// Into how many parts to split a head's panels so that every thread has work.
int PanelParts(int panels, int64_t heads, int threads) {
  if (heads == 0) return 1;
  const int64_t wanted = (threads + heads - 1) / heads;
  return static_cast<int>(std::min<int64_t>(panels, wanted));
}

void SetPanels(int panels, int part, int parts, HeadRun& run) {
  run.first_panel = panels * part / parts;
  run.last_panel = panels * (part + 1) / parts;
}

// The head's view of its sequence's checkpoints.
std::vector<HeadCheckpoint> CheckpointsOfHead(const DeltaRuleForwardParams& params, int sequence,
                                              int64_t state_offset) {
  const auto begin = std::lower_bound(
      params.checkpoints.begin(), params.checkpoints.end(), sequence,
      [](const StateCheckpoint& checkpoint, int value) { return checkpoint.sequence < value; });
  std::vector<HeadCheckpoint> checkpoints;
  for (auto it = begin; it != params.checkpoints.end() && it->sequence == sequence; ++it) {
    checkpoints.push_back({it->tokens, it->state + state_offset});
  }
  return checkpoints;
}

void RunForwardPart(const DeltaRuleForwardParams& params, const DeltaRuleShape& shape,
                    int64_t sequence, int head, int part, int parts, BlockScratch& scratch) {
  const int64_t first_row = params.offsets[sequence];
  const int64_t state_offset = static_cast<int64_t>(head) * shape.value_dim * shape.key_dim;
  const std::vector<HeadCheckpoint> checkpoints =
      CheckpointsOfHead(params, static_cast<int>(sequence), state_offset);
  HeadRun run;
  run.shape = shape;
  run.rows = params.offsets[sequence + 1] - first_row;
  if (run.rows > 0) {
    run.in = RowsOfHead(shape, params.in, first_row, head, /*reads_q=*/true);
    run.o = static_cast<float*>(params.o.data) + first_row * params.o.row_stride +
            static_cast<int64_t>(head) * shape.value_dim;
    run.o_stride = params.o.row_stride;
  }
  if (params.initial_states != nullptr && params.initial_states[sequence] != nullptr) {
    run.initial_state = params.initial_states[sequence] + state_offset;
  }
  if (params.final_states != nullptr && params.final_states[sequence] != nullptr) {
    run.final_state = params.final_states[sequence] + state_offset;
  }
  run.checkpoints = checkpoints.data();
  run.checkpoint_count = static_cast<int64_t>(checkpoints.size());
  SetPanels(shape.value_dim / kPanelColumns, part, parts, run);
  RunHead(run, scratch);
}

}  // namespace

Status DeltaRuleForward(const DeltaRuleForwardParams& params, ThreadTeam& team) {
  if (Status status = ValidateForward(params); !status.ok()) return status;
  const DeltaRuleShape shape = Resolved(params.shape);
  const int64_t heads =
      (static_cast<int64_t>(params.offsets.size()) - 1) * params.shape.value_heads;
  const int parts = PanelParts(shape.value_dim / kPanelColumns, heads, team.threads());
  return RunOnTeam(team, heads * parts, [&](int64_t index, BlockScratch& scratch) {
    const int64_t item = index / parts;
    RunForwardPart(params, shape, item / shape.value_heads,
                   static_cast<int>(item % shape.value_heads), static_cast<int>(index % parts),
                   parts, scratch);
  });
}

Status DeltaRuleSummary(const DeltaRuleSummaryParams& params, ThreadTeam& team) {
  if (Status status = ValidateSummary(params); !status.ok()) return status;
  const DeltaRuleShape shape = Resolved(params.shape);
  const int panels = (shape.value_dim + shape.key_dim) / kPanelColumns;
  const int parts = PanelParts(panels, shape.value_heads, team.threads());
  return RunOnTeam(team, static_cast<int64_t>(shape.value_heads) * parts,
                   [&](int64_t index, BlockScratch& scratch) {
                     const int head = static_cast<int>(index / parts);
                     HeadRun run;
                     run.shape = shape;
                     run.rows = params.rows;
                     if (run.rows > 0) {
                       run.in = RowsOfHead(shape, params.in, /*row=*/0, head, /*reads_q=*/false);
                     }
                     run.final_state =
                         params.b + static_cast<int64_t>(head) * shape.value_dim * shape.key_dim;
                     run.m = params.m + static_cast<int64_t>(head) * shape.key_dim * shape.key_dim;
                     SetPanels(panels, static_cast<int>(index % parts), parts, run);
                     RunHead(run, scratch);
                   });
}

Status DeltaRuleStep(const DeltaRuleStepParams& params, ThreadTeam& team) {
  if (Status status = ValidateStep(params); !status.ok()) return status;
  const DeltaRuleShape shape = Resolved(params.shape);
  return RunOnTeam(
      team, params.batch * shape.value_heads, [&](int64_t index, BlockScratch& scratch) {
        const int64_t row = index / shape.value_heads;
        const int head = static_cast<int>(index % shape.value_heads);
        HeadStep step;
        step.shape = shape;
        step.in = RowsOfHead(shape, params.in, row, head, /*reads_q=*/true);
        step.state =
            params.states[row] + static_cast<int64_t>(head) * shape.value_dim * shape.key_dim;
        step.o = static_cast<float*>(params.o.data) + row * params.o.row_stride +
                 static_cast<int64_t>(head) * shape.value_dim;
        RunHeadStep(step, scratch);
      });
}

}  // namespace deltafill::kernels::cpu
