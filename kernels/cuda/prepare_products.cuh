// The block's products of rows with rows, A and P: a warp has a strip of 16 rows of one of them,
// and keeps its rows' operand over the strip's sub-blocks.
#ifndef DELTAFILL_KERNELS_CUDA_PREPARE_PRODUCTS_CUH_
#define DELTAFILL_KERNELS_CUDA_PREPARE_PRODUCTS_CUH_

#include "kernels/cuda/prepare_shared.cuh"

namespace deltafill::kernels::cuda {

// The sub-blocks of a strip below the diagonal, as accumulators.
using StripBelow = float[kSubBlocks - 1][2][4];

// Where a sub-block below the diagonal lies in PrepareShared::Inverse.
__device__ __forceinline__ constexpr int BelowIndex(int row_sub, int column_sub) {
  return row_sub * (row_sub - 1) / 2 + column_sub;
}

// Rows `row_sub` of q or k times the keys of its own sub-block and of those before, with the decay
// between the two rows. A loop over halves of K = 128, as code that is run has to stay in the
// instruction cache.
template <int K, int row_sub>
__device__ __forceinline__ void MultiplyStrip(const PrepareGroup<K>& group, bool queries,
                                              StripBelow& below, float (&diagonal)[2][4]) {
  PrepareShared<K>& s = *group.shared;
  const int lane = group.lane();
  LaneOffset<K> rows(SharedAddress(queries ? s.q : s.k) + TileOffset<K>(row_sub * kSubBlockRows, 0),
                     lane & 15, (lane >> 4) * 8);
  LaneOffset<K> columns(SharedAddress(s.f), (lane & 7) + ((lane >> 4) << 3), ((lane >> 3) & 1) * 8);
  const uint32_t inverse = SharedAddress(s.n) - SharedAddress(s.f);
  const uint32_t* between = s.between[0] + (lane & 3);
  constexpr int kSteps = K < 64 ? K / 16 : 4;
#pragma unroll 1
  for (int half = 0; half < K / 16 / kSteps; ++half) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t a[4], b[4];
      LoadMatrix4(rows[step], a);
#pragma unroll
      for (int column_sub = 0; column_sub < row_sub; ++column_sub) {
        LoadMatrix4(columns[step] + TileOffset<K>(column_sub * kSubBlockRows, 0), b);
        if (row_sub - column_sub > 1) {
          const int decay = row_sub - column_sub == 3 ? 2 : column_sub;
          const uint32_t low = between[decay * (K / 2) + step * 8];
          const uint32_t high = between[decay * (K / 2) + step * 8 + 4];
          b[0] = MultiplyBf16(b[0], low);
          b[1] = MultiplyBf16(b[1], high);
          b[2] = MultiplyBf16(b[2], low);
          b[3] = MultiplyBf16(b[3], high);
        }
        MmaBf16(below[column_sub][0], a, b[0], b[1]);
        MmaBf16(below[column_sub][1], a, b[2], b[3]);
      }
      LoadMatrix4(columns[step] + inverse + TileOffset<K>(row_sub * kSubBlockRows, 0), b);
      MmaBf16(diagonal[0], a, b[0], b[1]);
      MmaBf16(diagonal[1], a, b[2], b[3]);
    }
    rows.Advance();
    columns.Advance();
    between += kSteps * 8;
  }
}

// Zeros above the diagonal, and on it too unless `inclusive`.
__device__ __forceinline__ void MaskDiagonal(bool inclusive, int lane, float (&acc)[2][4]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = (lane >> 2) + (i & 2) * 4, column = (i >> 2) * 8 + (lane & 3) * 2 + (i & 1);
    if (!(column < row || (inclusive && column == row))) acc[i >> 2][i & 3] = 0.0f;
  }
}

__device__ __forceinline__ void StoreSquareOfP(uint8_t* p, int row_sub, int column_sub, int lane,
                                               const float (&acc)[2][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = row_sub * kSubBlockRows + (lane >> 2) + (i >> 1) * 8;
    const int column = column_sub * kSubBlockRows + (i & 1) * 8 + (lane & 3) * 2;
    StoreGlobal(p + TileOffset<kBlockRows>(row, column),
                PackBf16(acc[i & 1][i & 2], acc[i & 1][(i & 2) + 1]));
  }
}

// A strip of P to the slot.
template <int K>
__device__ __forceinline__ void StoreStripOfP(const PrepareGroup<K>& group, const BlockTask& task,
                                              int row_sub, const StripBelow& below,
                                              const float (&diagonal)[2][4]) {
  uint8_t* p = task.slot + SlotLayout<K>::kP;
#pragma unroll
  for (int column_sub = 0; column_sub < kSubBlocks - 1; ++column_sub) {
    if (column_sub < row_sub) {
      StoreSquareOfP(p, row_sub, column_sub, group.lane(), below[column_sub]);
    }
  }
  StoreSquareOfP(p, row_sub, row_sub, group.lane(), diagonal);
}

// A sub-block of A from its products: times the rows' beta. Linear attention corrects nothing: its
// A is zero, even where products overflowed. With the delta rule such products belong to rows that
// are computed again, exactly.
template <int K>
__device__ __forceinline__ void ScaleByBeta(const PrepareGroup<K>& group, int row_sub,
                                            float (&acc)[2][4]) {
  const bool delta = group.in->delta;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = row_sub * kSubBlockRows + (group.lane() >> 2) + (i & 2) * 4;
    acc[i >> 2][i & 3] = delta ? group.shared->beta[row] * acc[i >> 2][i & 3] : 0.0f;
  }
}

__device__ __forceinline__ void StoreSquare(SquareTile& tile, const float (&acc)[2][4], int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = (lane >> 2) + (i >> 1) * 8, column = (i & 1) * 8 + (lane & 3) * 2;
    *reinterpret_cast<float2*>(&tile.at[row * SquareTile::kStride + column]) =
        make_float2(acc[i & 1][i & 2], acc[i & 1][(i & 2) + 1]);
  }
}

// Rows of the diagonal sub-blocks whose decay passes the floor: pair by pair, every exponent <= 0.
// Which rows these are depends on the rows before only.
template <int K>
__device__ __forceinline__ void ExactDiagonalRows(const PrepareGroup<K>& group,
                                                  const BlockTask& task) {
  PrepareShared<K>& s = *group.shared;
  constexpr int kChannels = K / 32;
  const int lane = group.lane();
  const float* c = task.exact_rows;
  const float* k = c + kBlockRows * K;
  const float* q = k + kBlockRows * K;
  for (int row = group.warp(); row < kBlockRows; row += PrepareGroup<K>::kWarps) {
    const int sub = row / kSubBlockRows, first = sub * kSubBlockRows;
    if (row - first < s.fast_rows[sub]) continue;
    float c_row[kChannels], k_row[kChannels], q_row[kChannels];
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      const int at = row * K + i * 32 + lane;
      c_row[i] = c[at];
      k_row[i] = k[at];
      q_row[i] = q[at];
    }
    for (int column = first; column <= row; ++column) {
      float k_sum = 0.0f, q_sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        const int at = column * K + i * 32 + lane;
        const float decayed = k[at] * Exp2(c_row[i] - c[at]);
        k_sum = fmaf(k_row[i], decayed, k_sum);
        q_sum = fmaf(q_row[i], decayed, q_sum);
      }
      k_sum = SumWarp(k_sum);
      q_sum = SumWarp(q_sum);
      if (lane != 0) continue;
      if (column < row && group.in->delta) {
        s.a_diagonal[sub].at[(row - first) * SquareTile::kStride + column - first] =
            s.beta[row] * k_sum;
      }
      *reinterpret_cast<__nv_bfloat16*>(task.slot + SlotLayout<K>::kP +
                                        TileOffset<kBlockRows>(row, column)) =
          __float2bfloat16(q_sum);
    }
  }
}

// Zeros above the diagonal sub-blocks of T and P; nothing else is ever written there.
template <int K>
__device__ __forceinline__ void ClearUpperBlocks(const PrepareGroup<K>& group,
                                                 const BlockTask& task) {
  for (int index = group.thread; index < 2 * kBlockRows * 8; index += kGroupThreads<K>) {
    const int row = index >> 3 & (kBlockRows - 1), column = (index & 7) * 8;
    if (column / kSubBlockRows <= row / kSubBlockRows) continue;
    const int matrix = index < kBlockRows * 8 ? SlotLayout<K>::kT : SlotLayout<K>::kP;
    StoreGlobal(task.slot + matrix + TileOffset<kBlockRows>(row, column),
                make_float4(0.0f, 0.0f, 0.0f, 0.0f));
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PREPARE_PRODUCTS_CUH_
