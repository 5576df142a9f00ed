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
  union {
    alignas(16) __nv_bfloat16 n[kBlockRows * kRowStride];  // k exp(-c), rows before the decay floor
    alignas(16) float a[kBlockRows * kSquareStride];       // then A; diagonal sub-blocks become T's
  };
  float decay[kSubBlocks][K];             // exp(c_end) of the sub-blocks
  uint32_t between[3][K / 2];             // bf16 decays over sub-blocks 1, 2, and 1 and 2
  alignas(16) float2 factor[kBlockRows];  // of k and q: norms and the query's scale
  float beta[kBlockRows];
  float row_gate[kBlockRows];  // log2 decay of scalar gates
  int fast_rows[kSubBlocks];   // rows of a sub-block before the decay floor
};

struct BlockTask {
  int64_t first_row = 0;
  int valid_rows = 0;  // 1 to 64
  int value_head = 0;
  uint8_t* slot = nullptr;
  bool slot_is_new = true;      // no block of this launch was prepared in it before
  float* exact_rows = nullptr;  // the group's scratch [3][64][K]: c, k, q where a decay is too fast
};

// Scalars of a block that a thread asks for ahead of time, together with the rows.
// They stay as they come, since converting one would wait for it.
struct BlockScalars {
  __nv_bfloat16 beta = {};      // of row `thread`, raw
  __nv_bfloat16 row_gate = {};  // scalar gates: f of row `thread`
  float a_log = 0.0f;           // of the head
  float4 bias = {};  // channel gates: of the thread's channels; scalar gates: x, of the head
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

  // In the phases that go over rows, a thread has four channels and 8 of a sub-block's 16 rows.
  static constexpr int kQuads = K / 4;
  __device__ __forceinline__ int half() const { return lane() >> 4; }
  __device__ __forceinline__ int channel() const {
    return (warp() * 16 + (lane() & 15)) % kQuads * 4;
  }
  __device__ __forceinline__ int sub() const { return (warp() * 16 + (lane() & 15)) / kQuads; }
  __device__ __forceinline__ int first_row() const {
    return sub() * kSubBlockRows + half() * (kSubBlockRows / 2);
  }
};

// Rows [first_row, first_row + 64) of columns [column, column + width) into shared memory rows of
// `shared_stride` elements; rows from valid_rows on become zeros and are never read.
template <int width, int threads>
__device__ __forceinline__ void LoadTile(const DeviceRows& from, int64_t first_row, int valid_rows,
                                         int64_t column, __nv_bfloat16* to, int shared_stride,
                                         int thread) {
  constexpr int kChunks = width / 8, kRowsAtOnce = threads / kChunks;
  const int first = thread / kChunks, offset = thread % kChunks * 8;
  const __nv_bfloat16* source = from.rows + (first_row + first) * from.stride + column + offset;
  const int64_t step = kRowsAtOnce * from.stride;
  if (from.vectorized) {
    const uint32_t target = SharedAddress(to + first * shared_stride + offset);
#pragma unroll
    for (int i = 0; i < kBlockRows / kRowsAtOnce; ++i, source += step) {
      CopyAsync16(target + i * kRowsAtOnce * shared_stride * 2, source,
                  first + i * kRowsAtOnce < valid_rows);
    }
    return;
  }
#pragma unroll 1
  for (int row = first; row < kBlockRows; row += kRowsAtOnce, source += step) {
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      to[row * shared_stride + offset + i] = row < valid_rows ? source[i] : __float2bfloat16(0.0f);
    }
  }
}

template <int K>
__device__ __forceinline__ BlockScalars LoadBlockScalars(const PrepareGroup<K>& group,
                                                         const BlockTask& task) {
  const BlockInputs& in = *group.in;
  const int head = task.value_head;
  BlockScalars scalars;
  if (group.thread < task.valid_rows) {
    const int64_t row = task.first_row + group.thread;
    if (in.delta) scalars.beta = in.beta.rows[row * in.beta.stride + head];
    if (in.gate == GateKind::kScalarSoftplus || in.gate == GateKind::kScalarPreactivated) {
      scalars.row_gate = in.f.rows[row * in.f.stride + head];
    }
  }
  if (UsesALog(in.gate)) {
    scalars.a_log = in.a_log[head];
    if (in.dt_bias && IsChannelGate(in.gate)) {
      const float* bias = in.dt_bias + static_cast<int64_t>(head) * K + group.channel();
      scalars.bias = make_float4(bias[0], bias[1], bias[2], bias[3]);
    } else if (in.dt_bias) {
      scalars.bias.x = in.dt_bias[head];
    }
  }
  return scalars;
}

// Requests the block's rows and scalars.
template <int K>
__device__ __forceinline__ BlockScalars LoadBlockRows(const PrepareGroup<K>& group,
                                                      const BlockTask& task) {
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
  return LoadBlockScalars<K>(group, task);
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PREPARE_SHARED_CUH_
