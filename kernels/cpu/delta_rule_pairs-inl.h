// The intra-block matrices A and P (BlockScratch::a, ::p), by 16-row sub-blocks.
//
// Rows of a sub-block are decayed from its first row (the anchor) on, columns before it are decayed
// up to it, so both exponents are <= 0. Inside the sub-block a column's exponent is positive; a row
// uses that product only if its own decay since the anchor is at most 2^-64 in every channel, which
// bounds the factors of all columns before it, and the exponents are shifted by 32 to halve the
// bound. Other rows ("steep") take exact pairs. The powers of two are exact, and which way a row
// takes depends on no later row. Per-target header: included once for each instruction set.
#if defined(DELTAFILL_KERNELS_CPU_DELTA_RULE_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DELTAFILL_KERNELS_CPU_DELTA_RULE_PAIRS_INL_H_
#undef DELTAFILL_KERNELS_CPU_DELTA_RULE_PAIRS_INL_H_
#else
#define DELTAFILL_KERNELS_CPU_DELTA_RULE_PAIRS_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/delta_rule_head.h"
#include "kernels/cpu/delta_rule_math-inl.h"
#include "kernels/cpu/delta_rule_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu::HWY_NAMESPACE {

inline constexpr int kSteepExponent = 64;
inline constexpr int kExponentShift = kSteepExponent / 2;

// Fills the sub-block's left rows. Returns its first steep row, kSubRows if there is none.
HWY_NOINLINE int LeftRows(int key_dim, int anchor, bool queries, BlockScratch& scratch) {
  const F32 d;
  const I32 di;
  int steep_from = kSubRows;
  for (int r = 0; r < kSubRows; ++r) {
    IntVec least = hn::Zero(di);
    for (int c = 0; c < key_dim; c += kLanes) {
      const IntVec since = hn::Sub(hn::Load(di, scratch.whole[anchor + r] + c),
                                   hn::Load(di, scratch.whole[anchor] + c));
      least = hn::Min(least, since);
      const Vec power = PowerOfTwo(hn::Add(since, hn::Set(di, kExponentShift)));
      const Vec key = hn::Load(d, scratch.key_up[anchor + r] + c);
      hn::Store(hn::Mul(key, power), d, scratch.key_left[r] + c);
      if (!queries) continue;
      const Vec query = hn::Load(d, scratch.query_up[anchor + r] + c);
      hn::Store(hn::Mul(query, power), d, scratch.query_left[r] + c);
    }
    const auto steep = hn::Lt(least, hn::Set(di, -kSteepExponent));
    if (steep_from == kSubRows && !hn::AllFalse(di, steep)) steep_from = r;
  }
  return steep_from;
}

// Fills right panels 0 .. anchor / kSubRows.
HWY_NOINLINE void RightPanels(int key_dim, int anchor, BlockScratch& scratch) {
  const F32 d;
  const I32 di;
  const IntVec most = hn::Set(di, kExponentShift);
  for (int panel = 0; panel <= anchor / kSubRows; ++panel) {
    for (int c = 0; c < key_dim; ++c) {
      const IntVec at_anchor = hn::Set(di, scratch.whole[anchor][c] - kExponentShift);
      for (int j = 0; j < kSubRows; j += kLanes) {
        const IntVec whole = hn::Load(di, scratch.whole_by_channel[panel][c] + j);
        const Vec power = PowerOfTwo(hn::Min(hn::Sub(at_anchor, whole), most));
        const Vec key = hn::Load(d, scratch.key_down_by_channel[panel][c] + j);
        hn::Store(hn::Mul(key, power), d, scratch.key_right[panel][c] + j);
      }
    }
  }
}

// to[r, j] = sum_c left[r, c] right[c, j] for the sub-block's rows and one panel of columns.
HWY_NOINLINE void PanelProduct(int key_dim, const float (*left)[kMaxDim],
                               const float (*right)[kSubRows], float* to) {
  for (int r = 0; r < kSubRows; r += kTileRows) {
    Tile<kSubRows / kLanes> tile;
    tile.SetZero();
    tile.template Add<Sign::kPlus, kMaxDim, 1, kSubRows>(left[r], right[0], key_dim);
    tile.template Store<kBlockRows>(to + r * kBlockRows);
  }
}

// Row i of A and P inside its sub-block, pair by pair: the exponents are true differences.
HWY_NOINLINE void SteepRow(int key_dim, int i, bool queries, BlockScratch& scratch) {
  const F32 d;
  const I32 di;
  for (int j = i - i % kSubRows; j <= i; ++j) {
    Vec a = hn::Zero(d);
    Vec p = hn::Zero(d);
    for (int c = 0; c < key_dim; c += kLanes) {
      const IntVec between =
          hn::Sub(hn::Load(di, scratch.whole[i] + c), hn::Load(di, scratch.whole[j] + c));
      const Vec right = hn::Mul(hn::Load(d, scratch.key_down[j] + c), PowerOfTwo(between));
      a = hn::MulAdd(hn::Load(d, scratch.key_up[i] + c), right, a);
      if (queries) p = hn::MulAdd(hn::Load(d, scratch.query_up[i] + c), right, p);
    }
    scratch.a[i][j] = hn::GetLane(hn::SumOfLanes(d, a));
    scratch.p[i][j] = hn::GetLane(hn::SumOfLanes(d, p));
  }
}

// Fills a (without beta) and p for `rows` rows, a multiple of kSubRows.
HWY_INLINE void IntraBlockProducts(const HeadRun& run, int rows, BlockScratch& scratch) {
  const int key_dim = run.shape.key_dim;
  const bool deltas = run.shape.write == WriteRule::kDelta;
  const bool queries = run.o != nullptr;
  for (int b = 0; b * kSubRows < rows; ++b) {
    Transpose(scratch.key_down[b * kSubRows], kMaxDim, kSubRows, key_dim,
              scratch.key_down_by_channel[b][0], kSubRows);
    Transpose(scratch.whole[b * kSubRows], kMaxDim, kSubRows, key_dim,
              scratch.whole_by_channel[b][0], kSubRows);
  }
  for (int anchor = 0; anchor < rows; anchor += kSubRows) {
    const int steep_from = LeftRows(key_dim, anchor, queries, scratch);
    RightPanels(key_dim, anchor, scratch);
    for (int panel = 0; panel <= anchor / kSubRows; ++panel) {
      const float(*right)[kSubRows] = scratch.key_right[panel];
      const int column = panel * kSubRows;
      if (deltas) {
        PanelProduct(key_dim, scratch.key_left, right, scratch.a[anchor] + column);
      }
      if (queries) {
        PanelProduct(key_dim, scratch.query_left, right, scratch.p[anchor] + column);
      }
    }
    for (int r = steep_from; r < kSubRows; ++r) SteepRow(key_dim, anchor + r, queries, scratch);
  }
}

// Folds beta_i into row i of a.
HWY_INLINE void ScaleByBeta(int rows, BlockScratch& scratch) {
  const F32 d;
  for (int i = 0; i < rows; ++i) {
    const Vec beta = hn::Set(d, scratch.beta[i]);
    for (int j = 0; j <= i; j += kLanes) {
      hn::Store(hn::Mul(hn::Load(d, scratch.a[i] + j), beta), d, scratch.a[i] + j);
    }
  }
}

}  // namespace deltafill::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DELTAFILL_KERNELS_CPU_DELTA_RULE_PAIRS_INL_H_
