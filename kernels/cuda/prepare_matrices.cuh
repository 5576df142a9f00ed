// Second half of a block's preparation: A, P and the triangular inverse T.
#ifndef DELTAFILL_KERNELS_CUDA_PREPARE_MATRICES_CUH_
#define DELTAFILL_KERNELS_CUDA_PREPARE_MATRICES_CUH_

#include "kernels/cuda/prepare_shared.cuh"

namespace deltafill::kernels::cuda {

// acc[16, 16] = rows of q or k in sub-block `row_sub` times the keys of sub-block `column_sub`,
// with the decay between the two rows.
// `apart`: at least one sub-block lies between them.
template <int K, bool apart>
__device__ __forceinline__ void DecayedProducts(const PrepareGroup<K>& group, bool queries,
                                                int row_sub, int column_sub, float (&acc)[2][4]) {
  const PrepareShared<K>& s = *group.shared;
  constexpr int kStride = PrepareShared<K>::kRowStride;
  const int lane = group.lane();
  const __nv_bfloat16* rows = queries ? s.q : s.k;
  const __nv_bfloat16* columns = row_sub == column_sub ? s.n : s.f;
  const uint32_t a_at =
      SharedAddress(rows + (row_sub * kSubBlockRows + (lane & 15)) * kStride + (lane >> 4) * 8);
  const int column = column_sub * kSubBlockRows + (lane & 7) + ((lane >> 4) << 3);
  const uint32_t b_at = SharedAddress(columns + column * kStride + ((lane >> 3) & 1) * 8);
  const uint32_t* between = s.between[row_sub - column_sub == 3 ? 2 : column_sub] + (lane & 3);
#pragma unroll
  for (int step = 0; step < K / 16; ++step) {
    uint32_t a[4], b[4];
    LoadMatrix4(a_at + step * 32, a);
    LoadMatrix4(b_at + step * 32, b);
    if (apart) {
      const uint32_t low = between[step * 8], high = between[step * 8 + 4];
      b[0] = MultiplyBf16(b[0], low);
      b[1] = MultiplyBf16(b[1], high);
      b[2] = MultiplyBf16(b[2], low);
      b[3] = MultiplyBf16(b[3], high);
    }
    MmaBf16(acc[0], a, b[0], b[1]);
    MmaBf16(acc[1], a, b[2], b[3]);
  }
}

// A sub-block of P to the slot, or of A to shared memory.
template <int K>
__device__ __forceinline__ void StoreProducts(const PrepareGroup<K>& group, const BlockTask& task,
                                              bool queries, int row_sub, int column_sub,
                                              const float (&acc)[2][4]) {
  PrepareShared<K>& s = *group.shared;
  const int lane = group.lane();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = row_sub * kSubBlockRows + (lane >> 2) + (i >> 1) * 8;
    const int column = column_sub * kSubBlockRows + (i & 1) * 8 + (lane & 3) * 2;
    float low = acc[i & 1][i & 2], high = acc[i & 1][(i & 2) + 1];
    if (row_sub == column_sub) {
      const int last = queries ? row : row - 1;
      low = column <= last ? low : 0.0f;
      high = column < last ? high : 0.0f;
    }
    if (queries) {
      StoreGlobal(task.slot + SlotLayout<K>::kP + TileOffset<kBlockRows>(row, column),
                  PackBf16(low, high));
    } else {
      // Linear attention corrects nothing: its A is zero, even where products overflowed. With the
      // delta rule such products belong to rows that are computed again, exactly.
      const bool delta = group.in->delta;
      const float beta = s.beta[row];
      *reinterpret_cast<float2*>(&s.a[row * PrepareShared<K>::kSquareStride + column]) =
          make_float2(delta ? beta * low : 0.0f, delta ? beta * high : 0.0f);
    }
  }
}

// The lower sub-blocks of A and P, dealt to the warps. A takes the place of an operand, so the
// group meets between the products and their storing.
template <int K>
__device__ __forceinline__ void IntraBlockMatrices(const PrepareGroup<K>& group,
                                                   const BlockTask& task) {
  constexpr int kLowerBlocks = kSubBlocks * (kSubBlocks + 1) / 2;
  constexpr int kWarps = PrepareGroup<K>::kWarps;
  constexpr int kRounds = (2 * kLowerBlocks + kWarps - 1) / kWarps;
  float acc[kRounds][2][4] = {};
  auto place = [](int index, bool& queries, int& row_sub, int& column_sub) {
    queries = index >= kLowerBlocks;
    column_sub = index - (queries ? kLowerBlocks : 0);
    row_sub = (column_sub >= 1) + (column_sub >= 3) + (column_sub >= 6);
    column_sub -= row_sub * (row_sub + 1) / 2;
  };
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int index = round * kWarps + group.warp();
    if (index >= 2 * kLowerBlocks) continue;
    bool queries;
    int row_sub, column_sub;
    place(index, queries, row_sub, column_sub);
    if (row_sub - column_sub > 1) {
      DecayedProducts<K, true>(group, queries, row_sub, column_sub, acc[round]);
    } else {
      DecayedProducts<K, false>(group, queries, row_sub, column_sub, acc[round]);
    }
  }
  group.Sync();
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int index = round * kWarps + group.warp();
    if (index >= 2 * kLowerBlocks) continue;
    bool queries;
    int row_sub, column_sub;
    place(index, queries, row_sub, column_sub);
    StoreProducts<K>(group, task, queries, row_sub, column_sub, acc[round]);
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
    const int first = row / kSubBlockRows * kSubBlockRows;
    if (row - first < s.fast_rows[row / kSubBlockRows]) continue;
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
        s.a[row * PrepareShared<K>::kSquareStride + column] = s.beta[row] * k_sum;
      }
      *reinterpret_cast<__nv_bfloat16*>(task.slot + SlotLayout<K>::kP +
                                        TileOffset<kBlockRows>(row, column)) =
          __float2bfloat16(q_sum);
    }
  }
}

// T of a diagonal sub-block by forward substitution in fp32, in place of A's; and its rows' beta.
template <int K>
__device__ __forceinline__ void InvertDiagonal(const PrepareGroup<K>& group, const BlockTask& task,
                                               int sub) {
  PrepareShared<K>& s = *group.shared;
  constexpr int kStride = PrepareShared<K>::kSquareStride;
  float* a = &s.a[sub * kSubBlockRows * kStride + sub * kSubBlockRows];
  const int lane = group.lane(), column = lane & 15;
  float x[kSubBlockRows];
#pragma unroll
  for (int row = 0; row < kSubBlockRows; ++row) {
    float sum = row == column ? 1.0f : 0.0f;
#pragma unroll
    for (int m = 0; m < row; m += 4) {
      const float4 a4 = *reinterpret_cast<const float4*>(&a[row * kStride + m]);
      sum = fmaf(-a4.x, x[m], sum);
      if (m + 1 < row) sum = fmaf(-a4.y, x[m + 1], sum);
      if (m + 2 < row) sum = fmaf(-a4.z, x[m + 2], sum);
      if (m + 3 < row) sum = fmaf(-a4.w, x[m + 3], sum);
    }
    x[row] = sum;
  }
  __syncwarp();
#pragma unroll
  for (int row = 0; row < kSubBlockRows; ++row) {
    if (lane < 16) a[row * kStride + column] = x[row];
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = (lane >> 3) + i * 4, pair = (lane & 7) * 2;
    const float2 t = *reinterpret_cast<const float2*>(&a[row * kStride + pair]);
    const int offset =
        TileOffset<kBlockRows>(sub * kSubBlockRows + row, sub * kSubBlockRows + pair);
    StoreGlobal(task.slot + SlotLayout<K>::kT + offset, PackBf16(t.x, t.y));
  }
  if (lane < 16) {
    const int row = sub * kSubBlockRows + lane;
    StoreGlobal(task.slot + SlotLayout<K>::kBeta + row * 4, __float_as_uint(s.beta[row]));
  }
}

// A 16 x 16 operand in tf32 registers: two steps of 8 columns, whose order within a step is
// (0, 2, 4, 6, 1, 3, 5, 7), so that an accumulator turns into an operand without moving.
struct SquareOperand {
  uint32_t steps[2][4];
};

__device__ __forceinline__ SquareOperand OperandOf(const float (&acc)[2][4]) {
  SquareOperand operand;
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    operand.steps[step][0] = ToTf32(acc[step][0]);
    operand.steps[step][1] = ToTf32(acc[step][2]);
    operand.steps[step][2] = ToTf32(acc[step][1]);
    operand.steps[step][3] = ToTf32(acc[step][3]);
  }
  return operand;
}

// acc += operand * b, b a 16 x 16 sub-block in shared memory.
template <int stride>
__device__ __forceinline__ void MultiplySquare(float (&acc)[2][4], const SquareOperand& operand,
                                               const float* b, int lane) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const float* at = b + (step * 8 + (lane & 3) * 2) * stride + (lane >> 2);
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      MmaTf32(acc[tile], operand.steps[step], ToTf32(at[tile * 8]), ToTf32(at[stride + tile * 8]));
    }
  }
}

// Row `row_sub` of T below its diagonal: T_ab = -(sum_m T_am A_mb) T_bb, from the right.
template <int K, int row_sub>
__device__ __forceinline__ void InvertRow(const PrepareGroup<K>& group, const BlockTask& task) {
  PrepareShared<K>& s = *group.shared;
  constexpr int kStride = PrepareShared<K>::kSquareStride;
  const int lane = group.lane();
  auto sub_block = [&](int row, int column) {
    return &s.a[row * kSubBlockRows * kStride + column * kSubBlockRows];
  };
  SquareOperand t[row_sub + 1];
  {
    float acc[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* at = sub_block(row_sub, row_sub) + ((lane >> 2) + (i >> 1) * 8) * kStride +
                        (i & 1) * 8 + (lane & 3) * 2;
      acc[i & 1][i & 2] = at[0];
      acc[i & 1][(i & 2) + 1] = at[1];
    }
    t[row_sub] = OperandOf(acc);
  }
#pragma unroll
  for (int column = row_sub - 1; column >= 0; --column) {
    float sum[2][4] = {}, product[2][4] = {};
#pragma unroll
    for (int m = column + 1; m <= row_sub; ++m) {
      MultiplySquare<kStride>(sum, t[m], sub_block(m, column), lane);
    }
    MultiplySquare<kStride>(product, OperandOf(sum), sub_block(column, column), lane);
#pragma unroll
    for (int i = 0; i < 8; ++i) product[i >> 2][i & 3] = -product[i >> 2][i & 3];
    t[column] = OperandOf(product);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row_sub * kSubBlockRows + (lane >> 2) + (i >> 1) * 8;
      const int at = column * kSubBlockRows + (i & 1) * 8 + (lane & 3) * 2;
      StoreGlobal(task.slot + SlotLayout<K>::kT + TileOffset<kBlockRows>(row, at),
                  PackBf16(product[i & 1][i & 2], product[i & 1][(i & 2) + 1]));
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

#endif  // DELTAFILL_KERNELS_CUDA_PREPARE_MATRICES_CUH_
