// The serial chain over blocks for one panel of 32 state columns: solve for E, read O, write S.
// Panels are independent. Per-target header: included once for each instruction set.
#if defined(DELTAFILL_KERNELS_CPU_DELTA_RULE_CHAIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DELTAFILL_KERNELS_CPU_DELTA_RULE_CHAIN_INL_H_
#undef DELTAFILL_KERNELS_CPU_DELTA_RULE_CHAIN_INL_H_
#else
#define DELTAFILL_KERNELS_CPU_DELTA_RULE_CHAIN_INL_H_
#endif

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/delta_rule_head.h"
#include "kernels/cpu/delta_rule_math-inl.h"
#include "kernels/cpu/delta_rule_stage.h"
#include "kernels/cpu/delta_rule_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu::HWY_NAMESPACE {

// One block's rows of one panel of columns.
struct PanelRows {
  const float* v = nullptr;  // [count, 32]; nullptr: 0
  int64_t v_stride = 0;
  float* o = nullptr;  // [count, 32]; nullptr: not computed
  int64_t o_stride = 0;
  int count = 0;  // rows of the block
  RowStage* next_block = nullptr;
};

// Calls of next_block->Next() for a panel of a whole block.
inline constexpr int kStageCalls = kPanelColumns / kTileColumns * (kBlockRows / kTileRows);

using ChainTile = Tile<kTileVecs>;

// Brings a tile's rows, far apart in memory, into the cache.
HWY_INLINE void FetchTile(const float* rows, int64_t stride, int count, int i0, int column) {
  for (int r = i0; r < i0 + kTileRows && r < count; ++r) {
    const float* row = rows + r * stride + column;
    for (int c = 0; c < kTileColumns; c += 16) hwy::Prefetch(row + c);
  }
}

// sum[r, :] of rows that exist = v.
HWY_INLINE void LoadValues(const PanelRows& rows, int i0, int column, ChainTile& tile) {
  const F32 d;
  tile.SetZero();
  if (rows.v == nullptr) return;
  FetchTile(rows.v, rows.v_stride, rows.count, i0 + kTileRows, column);
  for (int r = 0; r < kTileRows && i0 + r < rows.count; ++r) {
    const float* v = rows.v + (i0 + r) * rows.v_stride + column;
    for (int c = 0; c < kTileVecs; ++c) tile.sum[r][c] = hn::LoadU(d, v + c * kLanes);
  }
}

HWY_INLINE void StoreOutputs(const PanelRows& rows, int i0, int column, const ChainTile& tile) {
  const F32 d;
  for (int r = 0; r < kTileRows && i0 + r < rows.count; ++r) {
    float* o = rows.o + (i0 + r) * rows.o_stride + column;
    for (int c = 0; c < kTileVecs; ++c) hn::StoreU(tile.sum[r][c], d, o + c * kLanes);
  }
}

// Forward substitution inside the tile: row r -= a[i0 + r, i0 + s] row s for s < r.
HWY_INLINE void SubstituteInside(const float (*a)[kBlockRows], int i0, ChainTile& tile) {
  const F32 d;
  for (int s = 0; s < kTileRows - 1; ++s) {
    for (int r = s + 1; r < kTileRows; ++r) {
      const Vec factor = hn::Set(d, a[i0 + r][i0 + s]);
      for (int c = 0; c < kTileVecs; ++c) {
        tile.sum[r][c] = hn::NegMulAdd(factor, tile.sum[s][c], tile.sum[r][c]);
      }
    }
  }
}

// The part of P E where row and column lie in the same tile: row r += p[i0 + r, i0 + s] e_s, s <=
// r. Later rows are not even multiplied by 0: they may hold NaN.
HWY_INLINE void ReadInside(const float (*p)[kBlockRows], const float* e, int i0, ChainTile& tile) {
  const F32 d;
  for (int s = 0; s < kTileRows; ++s) {
    Vec row[kTileVecs];
    for (int c = 0; c < kTileVecs; ++c) {
      row[c] = hn::Load(d, e + (i0 + s) * kPanelColumns + c * kLanes);
    }
    for (int r = s; r < kTileRows; ++r) {
      const Vec factor = hn::Set(d, p[i0 + r][i0 + s]);
      for (int c = 0; c < kTileVecs; ++c) {
        tile.sum[r][c] = hn::MulAdd(factor, row[c], tile.sum[r][c]);
      }
    }
  }
}

// E = (I + A)^-1 Diag(beta) (V - (K 2^G) S), or V for the linear rule.
HWY_NOINLINE void SolveWritten(const DeltaRuleShape& shape, const PanelRows& rows, int column,
                               const float* state, BlockScratch& scratch) {
  const F32 d;
  float* e = scratch.written[0] + column;
  for (int i0 = 0; i0 < rows.count; i0 += kTileRows) {
    rows.next_block->Next();
    ChainTile tile;
    LoadValues(rows, i0, column, tile);
    if (shape.write == WriteRule::kDelta) {
      tile.template Add<Sign::kMinus, kMaxDim, 1, kPanelColumns>(scratch.key_decayed[i0], state,
                                                                 shape.key_dim);
      for (int r = 0; r < kTileRows; ++r) {
        const Vec beta = hn::Set(d, scratch.beta[i0 + r]);
        for (int c = 0; c < kTileVecs; ++c) tile.sum[r][c] = hn::Mul(tile.sum[r][c], beta);
      }
      tile.template Add<Sign::kMinus, kBlockRows, 1, kPanelColumns>(scratch.a[i0], e, i0);
      SubstituteInside(scratch.a, i0, tile);
    }
    tile.template Store<kPanelColumns>(e + i0 * kPanelColumns);
  }
}

// O = (Q 2^G) S + P E.
HWY_NOINLINE void ReadOutputs(const DeltaRuleShape& shape, const PanelRows& rows, int column,
                              const float* state, const BlockScratch& scratch) {
  const float* e = scratch.written[0] + column;
  for (int i0 = 0; i0 < rows.count; i0 += kTileRows) {
    FetchTile(rows.o, rows.o_stride, rows.count, i0, column);  // to be written below
    ChainTile tile;
    tile.SetZero();
    tile.template Add<Sign::kPlus, kMaxDim, 1, kPanelColumns>(scratch.query_decayed[i0], state,
                                                              shape.key_dim);
    tile.template Add<Sign::kPlus, kBlockRows, 1, kPanelColumns>(scratch.p[i0], e, i0);
    ReadInside(scratch.p, e, i0, tile);
    StoreOutputs(rows, i0, column, tile);
  }
}

// S = Diag(decay) S + (K decayed to the end)^T E. The product is summed on its own, so that the
// state is rounded once a block and not once a token.
HWY_NOINLINE void WriteState(const DeltaRuleShape& shape, const PanelRows& rows, int column,
                             float* state, const BlockScratch& scratch) {
  const F32 d;
  const float* e = scratch.written[0] + column;
  for (int k0 = 0; k0 < shape.key_dim; k0 += kTileRows) {
    float* to = state + k0 * kPanelColumns;
    ChainTile tile;
    tile.SetZero();
    tile.template Add<Sign::kPlus, 1, kMaxDim, kPanelColumns>(scratch.key_down[0] + k0, e,
                                                              rows.count);
    for (int r = 0; r < kTileRows; ++r) {
      const Vec decay = hn::Set(d, scratch.decay[k0 + r]);
      for (int c = 0; c < kTileVecs; ++c) {
        const Vec before = hn::Load(d, to + r * kPanelColumns + c * kLanes);
        tile.sum[r][c] = hn::MulAdd(before, decay, tile.sum[r][c]);
      }
    }
    tile.template Store<kPanelColumns>(to);
  }
}

// Advances one panel [K, 32] of the state over one block.
HWY_INLINE void AdvancePanel(const DeltaRuleShape& shape, const PanelRows& rows, float* state,
                             BlockScratch& scratch) {
  for (int column = 0; column < kPanelColumns; column += kTileColumns) {
    SolveWritten(shape, rows, column, state + column, scratch);
    if (rows.o != nullptr) ReadOutputs(shape, rows, column, state + column, scratch);
    WriteState(shape, rows, column, state + column, scratch);
  }
}

}  // namespace deltafill::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DELTAFILL_KERNELS_CPU_DELTA_RULE_CHAIN_INL_H_
