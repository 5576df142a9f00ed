// One value head of one sequence: the unit of work of the CPU delta-rule operators, between the
// operators (delta_rule.cc) and the vectorised kernels (delta_rule_kernels.cc).
#ifndef DELTAFILL_KERNELS_CPU_DELTA_RULE_HEAD_H_
#define DELTAFILL_KERNELS_CPU_DELTA_RULE_HEAD_H_

#include <cstdint>
#include <span>

#include "kernels/delta_rule.h"

namespace deltafill::kernels::cpu {

inline constexpr int kBlockRows = static_cast<int>(kBlockTokens);
inline constexpr int kSubRows = 16;  // rows of a sub-block, which shares one anchor of decay
inline constexpr int kSubBlocks = kBlockRows / kSubRows;
inline constexpr int kMaxDim = 128;  // largest K and V
inline constexpr int kPanelColumns = 32;
inline constexpr int kMaxPanels = 2 * kMaxDim / kPanelColumns;  // V of a state, K of a summary's M

inline constexpr double kLog2E = 1.4426950408889634074;

// One head's columns of the packed rows, at the sequence's first row. Strides in elements.
struct HeadRows {
  const float* q = nullptr;     // [rows, K]; nullptr: not read
  const float* k = nullptr;     // [rows, K]
  const float* v = nullptr;     // [rows, V]
  const float* f = nullptr;     // [rows, K] or [rows, 1], by the gate kind
  const float* beta = nullptr;  // [rows, 1]
  int64_t q_stride = 0;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  int64_t f_stride = 0;
  int64_t beta_stride = 0;
  int f_width = 0;                 // K or 1
  double gate_scale = 0.0;         // log2 decay = gate_scale * (softplus, sigmoid or f itself)
  float gate_rate = 0.0f;          // exp(a_log), inside the lower bound's sigmoid
  const float* dt_bias = nullptr;  // [K] or [1], by the gate kind; nullptr: 0
};

struct HeadCheckpoint {
  int64_t tokens = 0;
  float* state = nullptr;  // [V, K]
};

// A run over all rows of a sequence for some columns of the state. Columns are independent, so any
// split of them gives the same bits. A summary is the same recurrence: B is the final state that
// starts from zero, and M the one of K more columns that start from the identity and have v = 0.
struct HeadRun {
  DeltaRuleShape shape;  // query_scale resolved
  HeadRows in;
  int64_t rows = 0;
  const float* initial_state = nullptr;  // [V, K]; nullptr: zero
  float* o = nullptr;                    // [rows, V]; nullptr: not computed
  int64_t o_stride = 0;
  float* final_state = nullptr;                 // [V, K] or nullptr
  float* m = nullptr;                           // [K, K] or nullptr
  const HeadCheckpoint* checkpoints = nullptr;  // ascending
  int64_t checkpoint_count = 0;
  int first_panel = 0;  // of V / kPanelColumns, then K / kPanelColumns of M if m is given
  int last_panel = 0;
};

// One token of one value head, in place.
struct HeadStep {
  DeltaRuleShape shape;
  HeadRows in;
  float* state = nullptr;  // [V, K]
  float* o = nullptr;      // [V]
};

// Working memory of one thread. With G the inclusive cumulative sum of log2 decays inside the
// block, G = whole + fraction, |fraction| <= 1/2: the exponential of any difference is a product of
// one exact power of two, 2^fraction and 2^-fraction, so nothing can overflow and no difference
// loses digits, however large the decays before it were.
struct alignas(64) BlockScratch {
  float raw_key[kBlockRows][kMaxDim];  // inputs of the block that is computed next
  float raw_query[kBlockRows][kMaxDim];
  float raw_gate[kBlockRows][kMaxDim];  // the first f_width of each row
  float raw_beta[kBlockRows];
  float key_up[kBlockRows][kMaxDim];         // k 2^fraction
  float query_up[kBlockRows][kMaxDim];       // q 2^fraction
  float key_down[kBlockRows][kMaxDim];       // k 2^-fraction; then k decayed to the block's end
  int32_t whole[kBlockRows][kMaxDim];        // <= 0
  float key_decayed[kBlockRows][kMaxDim];    // k 2^G
  float query_decayed[kBlockRows][kMaxDim];  // q 2^G
  float key_down_by_channel[kSubBlocks][kMaxDim][kSubRows];
  int32_t whole_by_channel[kSubBlocks][kMaxDim][kSubRows];
  float key_left[kSubRows][kMaxDim];  // decayed from the sub-block's anchor on
  float query_left[kSubRows][kMaxDim];
  float key_right[kSubBlocks][kMaxDim][kSubRows];  // decayed up to the anchor
  float a[kBlockRows][kBlockRows];  // beta_i k_i k_j 2^(G_i - G_j); read where i > j only
  float p[kBlockRows][kBlockRows];  // q_i k_j 2^(G_i - G_j); read where i >= j only
  float beta[kBlockRows];
  float key_scale[kBlockRows];
  float query_scale[kBlockRows];
  float up[kMaxDim];  // of the newest row
  float down[kMaxDim];
  float decay[kMaxDim];                      // 2^G at the block's last row
  float gate[kMaxDim];                       // of one row, before gate_scale
  double cumulative[kMaxDim];                // G
  float written[kBlockRows][kPanelColumns];  // E of one panel of columns
  float state[kMaxPanels][kMaxDim][kPanelColumns];
};

// Implemented per instruction set in delta_rule_kernels.cc and chosen at run time.
void RunHead(const HeadRun& run, BlockScratch& scratch);
void RunHeadStep(const HeadStep& step, BlockScratch& scratch);

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_DELTA_RULE_HEAD_H_
