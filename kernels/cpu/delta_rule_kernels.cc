#include "kernels/cpu/delta_rule_head.h"

#include <algorithm>
#include <cstring>

// AVX2 is the least that is compiled: NewCpuBackend refuses machines without it.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_SSE4)
#define HWY_BASELINE_TARGETS HWY_AVX2
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/delta_rule_kernels.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/delta_rule_chain-inl.h"
#include "kernels/cpu/delta_rule_pairs-inl.h"
#include "kernels/cpu/delta_rule_rows-inl.h"
#include "kernels/cpu/delta_rule_step-inl.h"
#include "kernels/cpu/delta_rule_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu::HWY_NAMESPACE {
namespace {

int ValuePanels(const HeadRun& run) { return run.shape.value_dim / kPanelColumns; }

// Rows of the block that starts at `row`.
int RowsOfBlock(const HeadRun& run, int64_t row) {
  return static_cast<int>(std::min<int64_t>(run.rows - row, kBlockRows));
}

// Panels [K, 32] of the run's columns, from the initial state or, for columns of M, the identity.
void LoadState(const HeadRun& run, BlockScratch& scratch) {
  const int key_dim = run.shape.key_dim;
  for (int panel = run.first_panel; panel < run.last_panel; ++panel) {
    float* to = scratch.state[panel][0];
    const int64_t column = static_cast<int64_t>(panel) * kPanelColumns;
    if (panel < ValuePanels(run) && run.initial_state != nullptr) {
      Transpose(run.initial_state + column * key_dim, key_dim, kPanelColumns, key_dim, to,
                kPanelColumns);
      continue;
    }
    std::memset(to, 0, sizeof(scratch.state[panel]));
    if (panel < ValuePanels(run)) continue;
    const int first_channel = (panel - ValuePanels(run)) * kPanelColumns;
    for (int c = 0; c < kPanelColumns; ++c) to[(first_channel + c) * kPanelColumns + c] = 1.0f;
  }
}

void StoreState(const HeadRun& run, const BlockScratch& scratch, float* state) {
  const int key_dim = run.shape.key_dim;
  for (int panel = run.first_panel; panel < run.last_panel && panel < ValuePanels(run); ++panel) {
    Transpose(scratch.state[panel][0], kPanelColumns, key_dim, kPanelColumns,
              state + static_cast<int64_t>(panel) * kPanelColumns * key_dim, key_dim);
  }
}

void StoreMap(const HeadRun& run, const BlockScratch& scratch) {
  const int key_dim = run.shape.key_dim;
  for (int panel = run.first_panel; panel < run.last_panel; ++panel) {
    if (panel < ValuePanels(run)) continue;
    float* to = run.m + (panel - ValuePanels(run)) * kPanelColumns;
    for (int k = 0; k < key_dim; ++k) {
      std::memcpy(to + k * key_dim, scratch.state[panel][k], sizeof(scratch.state[panel][k]));
    }
  }
}

// Computes rows [row, row + count), which are staged, and stages those that follow.
void AdvanceBlock(const HeadRun& run, int64_t row, int count, BlockScratch& scratch) {
  const int padded = DecayedRows(run, count, scratch);
  IntraBlockProducts(run, padded, scratch);
  if (run.shape.write == WriteRule::kDelta) ScaleByBeta(padded, scratch);
  DecayToEnd(run.shape.key_dim, count, scratch);
  const int64_t next_row = row + count;
  RowStage next_block(run, next_row, RowsOfBlock(run, next_row),
                      kStageCalls * (run.last_panel - run.first_panel), scratch);
  for (int panel = run.first_panel; panel < run.last_panel; ++panel) {
    PanelRows rows;
    rows.count = count;
    rows.next_block = &next_block;
    if (panel < ValuePanels(run)) {
      rows.v = run.in.v + row * run.in.v_stride + panel * kPanelColumns;
      rows.v_stride = run.in.v_stride;
      if (run.o != nullptr) rows.o = run.o + row * run.o_stride + panel * kPanelColumns;
      rows.o_stride = run.o_stride;
    }
    AdvancePanel(run.shape, rows, scratch.state[panel][0], scratch);
  }
  next_block.Finish();
}

void RunHeadTarget(const HeadRun& run, BlockScratch& scratch) {
  LoadState(run, scratch);
  RowStage(run, 0, RowsOfBlock(run, 0), 1, scratch).Finish();
  int64_t next_checkpoint = 0;
  for (int64_t row = 0; row < run.rows; row += kBlockRows) {
    const int count = RowsOfBlock(run, row);
    AdvanceBlock(run, row, count, scratch);
    for (; next_checkpoint < run.checkpoint_count &&
           run.checkpoints[next_checkpoint].tokens == row + count;
         ++next_checkpoint) {
      StoreState(run, scratch, run.checkpoints[next_checkpoint].state);
    }
  }
  if (run.final_state != nullptr) StoreState(run, scratch, run.final_state);
  if (run.m != nullptr) StoreMap(run, scratch);
}

void RunHeadStepTarget(const HeadStep& step, BlockScratch& scratch) { StepHead(step, scratch); }

}  // namespace
}  // namespace deltafill::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafill::kernels::cpu {

HWY_EXPORT(RunHeadTarget);
HWY_EXPORT(RunHeadStepTarget);

void RunHead(const HeadRun& run, BlockScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(RunHeadTarget)(run, scratch);
}

void RunHeadStep(const HeadStep& step, BlockScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(RunHeadStepTarget)(step, scratch);
}

}  // namespace deltafill::kernels::cpu
#endif  // HWY_ONCE
