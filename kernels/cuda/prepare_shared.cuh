// Shared memory and task of the preparation of one block (prepare_block.cuh says what that is).
// A group of 2 K threads works on a block; several groups may share a CTA.
#ifndef DELTAFILL_KERNELS_CUDA_PREPARE_SHARED_CUH_
#define DELTAFILL_KERNELS_CUDA_PREPARE_SHARED_CUH_

#include "kernels/cuda/device_params.h"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/slot_layout.h"

namespace deltafill::kernels::cuda {

// exp2 of a sub-block's inverse decay stays finite above this (a lower bound of -5 gives -115.4).
inline constexpr float kLog2DecayFloor = -116.0f;

template <int K>
inline constexpr int kGroupThreads = 2 * K;

template <int K>
struct PrepareShared {
  static constexpr int kRowStride = K + 8;  // elements: rows 16 bytes apart modulo 128
  static constexpr int kSquareStride = 68;  // floats

  alignas(16) __nv_bfloat16 q[kBlockRows * kRowStride];  // raw; then q exp(c)
  alignas(16) __nv_bfloat16 k[kBlockRows * kRowStride];  // raw; then k exp(c)
  alignas(16) __nv_bfloat16 f[kBlockRows * kRowStride];  // raw; then k exp(c_end - c)
  alignas(16) __nv_bfloat16 n[kBlockRows * kRowStride];  // k exp(-c), rows before the decay floor
  alignas(16) float a[kBlockRows * kSquareStride];       // A; diagonal sub-blocks become T's
  float decay[kSubBlocks][K];                            // exp(c_end) of the sub-blocks
  float q_factor[kBlockRows];
  float k_factor[kBlockRows];
  float beta[kBlockRows];
  float row_gate[kBlockRows];   // log2 decay of scalar gates
  int fast_rows[kSubBlocks];    // rows of a sub-block before the decay floor
};

struct BlockTask {
  int64_t first_row = 0;
  int valid_rows = 0;  // 1 to 64
  int value_head = 0;
  uint8_t* slot = nullptr;
  float* exact_rows = nullptr;  // the group's scratch [3][64][K]: c, k, q where a decay is too fast
};

template <int K>
struct PrepareGroup {
  PrepareShared<K>* shared;
  const BlockInputs* in;
  int thread;   // in the group
  int barrier;  // the group's barrier id

  __device__ __forceinline__ void Sync() const { GroupBarrier(barrier, kGroupThreads<K>); }
  __device__ __forceinline__ int warp() const { return thread >> 5; }
  __device__ __forceinline__ int lane() const { return thread & 31; }
  static constexpr int kWarps = kGroupThreads<K> / 32;
};

// Rows [first_row, first_row + 64) of columns [column, column + width) into shared memory rows of
// `shared_stride` elements; rows from valid_rows on become zeros and are never read.
template <int width, int threads>
__device__ __forceinline__ void LoadTile(const DeviceRows& from, int64_t first_row, int valid_rows,
                                         int64_t column, __nv_bfloat16* to, int shared_stride,
                                         int thread) {
  constexpr int kChunks = width / 8;
  for (int chunk = thread; chunk < kBlockRows * kChunks; chunk += threads) {
    const int row = chunk / kChunks, offset = chunk % kChunks * 8;
    const bool present = row < valid_rows;
    const __nv_bfloat16* source =
        from.rows + (first_row + (present ? row : 0)) * from.stride + column + offset;
    __nv_bfloat16* target = to + row * shared_stride + offset;
    if (from.vectorized) {
      CopyAsync16(SharedAddress(target), source, present);
    } else {
      for (int i = 0; i < 8; ++i) target[i] = present ? source[i] : __float2bfloat16(0.0f);
    }
  }
}

template <int K>
__device__ __forceinline__ void LoadBlockRows(const PrepareGroup<K>& group, const BlockTask& task) {
  PrepareShared<K>& s = *group.shared;
  const BlockInputs& in = *group.in;
  constexpr int kStride = PrepareShared<K>::kRowStride, kThreads = kGroupThreads<K>;
  const int64_t key_column = static_cast<int64_t>(task.value_head / in.heads_ratio) * K;
  if (IsChannelGate(in.gate)) {
    LoadTile<K, kThreads>(in.f, task.first_row, task.valid_rows,
                          static_cast<int64_t>(task.value_head) * K, s.f, kStride, group.thread);
  }
  LoadTile<K, kThreads>(in.k, task.first_row, task.valid_rows, key_column, s.k, kStride,
                        group.thread);
  LoadTile<K, kThreads>(in.q, task.first_row, task.valid_rows, key_column, s.q, kStride,
                        group.thread);
  CommitCopies();
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PREPARE_SHARED_CUH_
