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

// A sub-block of A or T in fp32, with rows that neither reads of columns nor of rows find in the
// same banks.
struct SquareTile {
  static constexpr int kStride = 20;
  float at[kSubBlockRows * kStride];
};

// The tiles of rows lie as in a slot (TileOffset), so that the copy engine can bring them. While
// the last rows of T are computed, the next block's factors and decays are written already.
template <int K>
struct PrepareShared {
  static constexpr int kBelowDiagonal = kSubBlocks * (kSubBlocks - 1) / 2;
  struct Inverse {
    SquareTile below[kBelowDiagonal];  // A's sub-blocks below the diagonal, rounded to tf32
    SquareTile diagonal[kSubBlocks];   // T's
  };

  alignas(1024) __nv_bfloat16 q[kBlockRows * K];  // raw; then q exp(c)
  alignas(1024) __nv_bfloat16 k[kBlockRows * K];  // raw; then k exp(c)
  alignas(1024) __nv_bfloat16 f[kBlockRows * K];  // raw; then k exp(c_end - c)
  union {
    alignas(1024) __nv_bfloat16 n[kBlockRows * K];  // k exp(-c), rows before the decay floor
    alignas(16) Inverse inverse;                    // then A and T
  };
  union {
    alignas(16) float decay[kSubBlocks][K];         // exp(c_end) of the sub-blocks
    alignas(16) SquareTile a_diagonal[kSubBlocks];  // then A's diagonal, inverted in place
  };
  uint32_t between[3][K / 2];             // bf16 decays over sub-blocks 1, 2, and 1 and 2
  alignas(16) float2 factor[kBlockRows];  // of k and q: norms and the query's scale
  float beta[kBlockRows];
  float row_gate[kBlockRows];  // log2 decay of scalar gates
  int fast_rows[kSubBlocks];   // rows of a sub-block before the decay floor; 16 between blocks
};

struct BlockTask {
  int64_t first_row = 0;
  int valid_rows = 0;  // 1 to 64
  int value_head = 0;
  uint8_t* slot = nullptr;
  bool slot_is_new = true;      // no block of this launch was prepared in it before
  float* exact_rows = nullptr;  // the group's scratch [3][64][K]: c, k, q where a decay is too fast
};

// Scalars that a thread asks for when a block begins, before it waits for the rows. They stay as
// they come, since converting one would wait for it.
struct BlockScalars {
  __nv_bfloat16 beta = {};      // of row PrepareGroup::scalar_row(), raw
  __nv_bfloat16 row_gate = {};  // scalar gates: f of that row
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
  // The first warps are busy longest with the block before: the others have the scalars and norms.
  __device__ __forceinline__ int scalar_row() const {
    return thread - (kGroupThreads<K> - kBlockRows);
  }

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

// Bytes from a row whose number is a multiple of 8 to the one r < 8 further, given the first one's
// offset or address.
template <int K, typename T>
__device__ __forceinline__ T RowAfter(T at, int r) {
  return (at ^ static_cast<T>(TileOffset<K>(r, 0) & 0x70)) + (TileOffset<K>(r, 0) & ~0x70);
}

// A lane's offset in a tile for ldmatrix, for columns [16 step, 16 step + 16).
template <int K>
struct LaneOffset {
  uint32_t quarters[4];  // columns modulo 64

  __device__ __forceinline__ LaneOffset(uint32_t tile, int row, int column) {
    const uint32_t at = TileOffset<K>(row, column);
#pragma unroll
    for (int i = 0; i < 4; ++i) quarters[i] = tile + (at ^ (i * 32));
  }
  __device__ __forceinline__ uint32_t operator[](int step) const {
    return quarters[step & 3] + (step >> 2) * (kBlockRows * 128);
  }
  // By 64 columns.
  __device__ __forceinline__ void Advance() {
#pragma unroll
    for (int i = 0; i < 4; ++i) quarters[i] += kBlockRows * 128;
  }
};

// Rows [first_row, first_row + 64) of columns [column, column + width) into a tile; rows from
// valid_rows on become zeros and are never read.
template <int width, int threads>
__device__ __forceinline__ void LoadTile(const DeviceRows& from, int64_t first_row, int valid_rows,
                                         int64_t column, __nv_bfloat16* to, int thread) {
  constexpr int kChunks = width / 8, kRowsAtOnce = threads / kChunks;
  const int first = thread / kChunks, offset = thread % kChunks * 8;
  const __nv_bfloat16* source = from.rows + (first_row + first) * from.stride + column + offset;
  const int64_t step = kRowsAtOnce * from.stride;
  if (from.vectorized) {
    static_assert(kRowsAtOnce % 8 == 0);
    const uint32_t target = SharedAddress(to) + TileOffset<width>(first, offset);
#pragma unroll
    for (int i = 0; i < kBlockRows / kRowsAtOnce; ++i, source += step) {
      CopyAsync16(target + TileOffset<width>(i * kRowsAtOnce, 0), source,
                  first + i * kRowsAtOnce < valid_rows);
    }
    return;
  }
#pragma unroll 1
  for (int row = first; row < kBlockRows; row += kRowsAtOnce, source += step) {
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      to[TileOffset<width>(row, offset + i) / 2] =
          row < valid_rows ? source[i] : __float2bfloat16(0.0f);
    }
  }
}

template <int K>
__device__ __forceinline__ BlockScalars LoadBlockScalars(const PrepareGroup<K>& group,
                                                         const BlockTask& task) {
  const BlockInputs& in = *group.in;
  const int head = task.value_head;
  BlockScalars scalars;
  if (group.scalar_row() >= 0 && group.scalar_row() < task.valid_rows) {
    const int64_t row = task.first_row + group.scalar_row();
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

// Requests the block's rows.
template <int K>
__device__ __forceinline__ void LoadBlockRows(const PrepareGroup<K>& group, const BlockTask& task) {
  PrepareShared<K>& s = *group.shared;
  const BlockInputs& in = *group.in;
  constexpr int kThreads = kGroupThreads<K>;
  const int64_t key_column = static_cast<int64_t>(task.value_head / in.heads_ratio) * K;
  if (IsChannelGate(in.gate)) {
    LoadTile<K, kThreads>(in.f, task.first_row, task.valid_rows,
                          static_cast<int64_t>(task.value_head) * K, s.f, group.thread);
  }
  LoadTile<K, kThreads>(in.k, task.first_row, task.valid_rows, key_column, s.k, group.thread);
  LoadTile<K, kThreads>(in.q, task.first_row, task.valid_rows, key_column, s.q, group.thread);
  CommitCopies();
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PREPARE_SHARED_CUH_
