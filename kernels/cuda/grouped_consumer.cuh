// The warpgroups of the grouped product that multiply: each has 64 of the CTA's
// 128 matrix rows and all rows of the token tile, so d[matrix row, token] of a
// thread is y transposed.
#ifndef DELTAFILL_KERNELS_CUDA_GROUPED_CONSUMER_CUH_
#define DELTAFILL_KERNELS_CUDA_GROUPED_CONSUMER_CUH_

#include "kernels/cuda/grouped_hopper_shared.cuh"
#include "kernels/cuda/swiglu.cuh"

namespace deltafill::kernels::cuda {

template <bool swiglu, int cluster>
struct GroupedConsumer {
  // Of y, and of a warpgroup; a row of them in shared memory.
  static constexpr int kFeatures = swiglu ? 32 : 64;
  static constexpr int kRowBytes = kFeatures * 2;
  static constexpr int kPassRows = kGroupedOutputBytes / kRowBytes;

  const GroupedHopperParams& p;
  GroupedShared& s;
  int group, warp, lane;  // warpgroup, warp in it, lane in that
  ProductReader<GroupedShared, cluster> reader;

  // 16 bytes of features of a row of the pass: places that neither writers nor
  // readers collide in.
  __device__ __forceinline__ uint32_t OutputPiece(int row, int piece) const {
    const uint32_t base = SharedAddress(s.outputs[group]);
    if constexpr (swiglu) {
      return SwizzledPiece(base, row >> 1, (row & 1) * 4 + piece);
    }
    return SwizzledPiece(base, row, piece);
  }

  // Token columns [8 first, 8 first + kPassRows) of d to shared memory, a row a
  // token.
  template <int rows>
  __device__ __forceinline__ void Stage(const float (&d)[rows / 2], int first) const {
    constexpr int kColumns = rows / 8;
    const int quarter = lane >> 3, of_eight = lane & 7;
    if constexpr (swiglu) {
#pragma unroll
      for (int n = 0; n < kColumns; n += 4) {
        uint32_t pairs[4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (n + i >= kColumns) continue;
          const float* const x = &d[(n + i) * 4];
          pairs[i] = PackBf16(SiluTimes(x[0], x[2]), SiluTimes(x[1], x[3]));
        }
        StoreMatrix4Transposed(OutputPiece((n + quarter) * 8 + of_eight, warp), pairs[0], pairs[1],
                               pairs[2], pairs[3]);
      }
    } else {
#pragma unroll
      for (int n = 0; n < kColumns; n += 2) {
        if (n < first || n >= first + kPassRows / 8) continue;
        const float* const x = &d[n * 4];
        uint32_t pairs[4] = {PackBf16(x[0], x[1]), PackBf16(x[2], x[3])};
        if (n + 1 < kColumns) {
          pairs[2] = PackBf16(x[4], x[5]);
          pairs[3] = PackBf16(x[6], x[7]);
        }
        const int row = (n - first + (quarter >> 1)) * 8 + of_eight;
        StoreMatrix4Transposed(OutputPiece(row, warp * 2 + (quarter & 1)), pairs[0], pairs[1],
                               pairs[2], pairs[3]);
      }
    }
  }

  __device__ __forceinline__ void StoreRows(const GroupedTask& task, int first_row) const {
    constexpr int kPieces = kFeatures / 8;
    const int first_feature = task.first_feature + group * kFeatures;
    const int rows = min(task.rows - first_row, kPassRows);
    for (int i = warp * 32 + lane; i < rows * kPieces; i += 128) {
      const int row = i / kPieces, piece = i % kPieces, feature = first_feature + piece * 8;
      if (feature >= p.out_features) continue;
      uint4 x;
      asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                   : "r"(OutputPiece(row, piece))
                   : "memory");
      const int64_t at = static_cast<int64_t>(task.first_row + first_row + row) * p.out_features;
      *reinterpret_cast<uint4*>(p.y + at + feature) = x;
    }
  }

  template <int rows>
  __device__ __forceinline__ void RunTile(const GroupedTask& task) {
    float d[1][rows / 2];
#pragma unroll
    for (int i = 0; i < rows / 2; ++i) d[0][i] = 0.0f;  // else its registers are the whole loop's
    reader.template Multiply<rows, 1>(d, group * 64, p.depth_blocks, [] {});
#pragma unroll
    for (int first = 0; first < rows; first += kPassRows) {
      if (first >= task.rows) break;
      GroupBarrier(group + 1, 128);  // all have read what was there
      Stage<rows>(d[0], first / 8);
      GroupBarrier(group + 1, 128);
      StoreRows(task, first);
    }
  }

  __device__ __forceinline__ void Run() {
    for (;;) {
      reader.WaitUntilFilled();
      const GroupedTask task = s.tasks[reader.stage.index];
      if (task.rows == 0) return;
      switch (task.padded_rows) {
        case 8:
          RunTile<8>(task);
          break;
        case 16:
          RunTile<16>(task);
          break;
        case 32:
          RunTile<32>(task);
          break;
        case 64:
          RunTile<64>(task);
          break;
        case 96:
          RunTile<96>(task);
          break;
        case 128:
          RunTile<128>(task);
          break;
        case 160:
          RunTile<160>(task);
          break;
        case 192:
          RunTile<192>(task);
          break;
        case 224:
          RunTile<224>(task);
          break;
        default:
          RunTile<256>(task);
          break;
      }
    }
  }
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_GROUPED_CONSUMER_CUH_
