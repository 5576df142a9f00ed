// T, the inverse of I + A, by sub-blocks.
#ifndef DELTAFILL_KERNELS_CUDA_PREPARE_INVERSE_CUH_
#define DELTAFILL_KERNELS_CUDA_PREPARE_INVERSE_CUH_

#include "kernels/cuda/prepare_products.cuh"

namespace deltafill::kernels::cuda {

// T of a diagonal sub-block by forward substitution in fp32, in place of A's; and its rows' beta.
// By the warp that wrote A's.
template <int K>
__device__ __forceinline__ void InvertDiagonal(const PrepareGroup<K>& group, const BlockTask& task,
                                               int sub) {
  PrepareShared<K>& s = *group.shared;
  constexpr int kStride = SquareTile::kStride;
  float* a = s.a_diagonal[sub].at;
  const int lane = group.lane(), column = lane & 15;
  __syncwarp();
  float t[kSubBlockRows];
#pragma unroll
  for (int row = 0; row < kSubBlockRows; ++row) {
    float sum = row == column ? 1.0f : 0.0f;
#pragma unroll
    for (int m = 0; m < row; m += 4) {
      const float4 a4 = *reinterpret_cast<const float4*>(&a[row * kStride + m]);
      sum = fmaf(-a4.x, t[m], sum);
      if (m + 1 < row) sum = fmaf(-a4.y, t[m + 1], sum);
      if (m + 2 < row) sum = fmaf(-a4.z, t[m + 2], sum);
      if (m + 3 < row) sum = fmaf(-a4.w, t[m + 3], sum);
    }
    t[row] = sum;
  }
  __syncwarp();
#pragma unroll
  for (int row = 0; row < kSubBlockRows; ++row) {
    if (lane < 16) a[row * kStride + column] = t[row];
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = (lane >> 3) + i * 4, pair = (lane & 7) * 2;
    const float2 two = *reinterpret_cast<const float2*>(&a[row * kStride + pair]);
    const int offset =
        TileOffset<kBlockRows>(sub * kSubBlockRows + row, sub * kSubBlockRows + pair);
    StoreGlobal(task.slot + SlotLayout<K>::kT + offset, PackBf16(two.x, two.y));
  }
  if (lane < 16) {
    const int row = sub * kSubBlockRows + lane;
    StoreGlobal(task.slot + SlotLayout<K>::kBeta + row * 4, __float_as_uint(s.beta[row]));
  }
}

// To where the rows of T find it, once `n` is not needed any more.
template <int K>
__device__ __forceinline__ void KeepDiagonal(const PrepareGroup<K>& group, int sub) {
  PrepareShared<K>& s = *group.shared;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = ((group.lane() >> 2) + i * 8) * SquareTile::kStride + (group.lane() & 3) * 4;
    *reinterpret_cast<float4*>(&s.inverse.diagonal[sub].at[at]) =
        *reinterpret_cast<const float4*>(&s.a_diagonal[sub].at[at]);
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

// acc += operand * b. `rounded`: b's elements are tf32.
template <bool rounded>
__device__ __forceinline__ void MultiplySquare(float (&acc)[2][4], const SquareOperand& operand,
                                               const SquareTile& b, int lane) {
  constexpr int kStride = SquareTile::kStride;
  auto element = [](float x) { return rounded ? __float_as_uint(x) : ToTf32(x); };
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const float* at = b.at + (step * 8 + (lane & 3) * 2) * kStride + (lane >> 2);
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      MmaTf32(acc[tile], operand.steps[step], element(at[tile * 8]),
              element(at[kStride + tile * 8]));
    }
  }
}

// Row `row_sub` of T below its diagonal: T_ab = -(sum_m T_am A_mb) T_bb, from the right. The same
// code for each row, with sub-blocks counted from the diagonal.
template <int K>
__device__ __forceinline__ void InvertRow(const PrepareGroup<K>& group, const BlockTask& task,
                                          int row_sub) {
  PrepareShared<K>& s = *group.shared;
  const int lane = group.lane();
  SquareOperand t[kSubBlocks - 1];
  {
    float acc[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* at = s.inverse.diagonal[row_sub].at +
                        ((lane >> 2) + (i >> 1) * 8) * SquareTile::kStride + (i & 1) * 8 +
                        (lane & 3) * 2;
      acc[i & 1][i & 2] = at[0];
      acc[i & 1][(i & 2) + 1] = at[1];
    }
    t[0] = OperandOf(acc);
  }
#pragma unroll
  for (int left = 1; left < kSubBlocks; ++left) {
    const int column = row_sub - left;
    if (column < 0) return;
    float sum[2][4] = {}, product[2][4] = {};
#pragma unroll
    for (int i = left - 1; i >= 0; --i) {
      MultiplySquare<true>(sum, t[i], s.inverse.below[BelowIndex(row_sub - i, column)], lane);
    }
    MultiplySquare<false>(product, OperandOf(sum), s.inverse.diagonal[column], lane);
#pragma unroll
    for (int i = 0; i < 8; ++i) product[i >> 2][i & 3] = -product[i >> 2][i & 3];
    if (left < kSubBlocks - 1) t[left] = OperandOf(product);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row_sub * kSubBlockRows + (lane >> 2) + (i >> 1) * 8;
      const int at = column * kSubBlockRows + (i & 1) * 8 + (lane & 3) * 2;
      StoreGlobal(task.slot + SlotLayout<K>::kT + TileOffset<kBlockRows>(row, at),
                  PackBf16(product[i & 1][i & 2], product[i & 1][(i & 2) + 1]));
    }
  }
}

inline constexpr int kInvertingWarps = kSubBlocks - 1;  // a row of T's sub-blocks each

template <int K>
__device__ __forceinline__ void InvertRows(const PrepareGroup<K>& group, const BlockTask& task) {
#pragma unroll 1
  for (int row = group.warp(); row < kInvertingWarps; row += PrepareGroup<K>::kWarps) {
    InvertRow<K>(group, task, kSubBlocks - 1 - row);
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PREPARE_INVERSE_CUH_
