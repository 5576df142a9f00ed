// The operands of one block of one value head, as they lie in a slot of the workspace: what the
// preparation writes and the state chain reads. Every matrix is bf16 in tiles of 64 rows.
//
//   ke [64, K]  k exp(G)          qe [64, K]  q K^-1/2 exp(G)       kg [64, K]  k exp(G_C - G)
//   t  [64, 64] (I + A)^-1                                          p  [64, 64] tril(q k^T decay)
//   decay [K]   exp(G_C), fp32       beta [64]  fp32
//
// A block then advances the state S by
//   X = Diag(beta) (V - ke S);  E = t X;  O = qe S + p E;  S <- Diag(decay) S + kg^T E.
// t has a diagonal of ones, which bf16 holds exactly: with fast gates that is most of E.
#ifndef DELTAFILL_KERNELS_CUDA_SLOT_LAYOUT_H_
#define DELTAFILL_KERNELS_CUDA_SLOT_LAYOUT_H_

#include <cstdint>

#ifdef __CUDACC__
#define DELTAFILL_HOST_DEVICE __host__ __device__
#else
#define DELTAFILL_HOST_DEVICE
#endif

namespace deltafill::kernels::cuda {

inline constexpr int kBlockRows = 64;
inline constexpr int kSubBlockRows = 16;
inline constexpr int kSubBlocks = kBlockRows / kSubBlockRows;
inline constexpr int kMaxRingSlots = 32;  // of a stream of the ring path: a lane of a warp each

// Byte offset of element (row, column) of a tile with `width` columns. Rows of 128 bytes with the
// 16-byte chunks swizzled as WGMMA's 128-byte mode wants them; a second half of 64 columns follows
// the first. Tiles of 32 columns have rows of 64 bytes and the 64-byte swizzle.
template <int width>
DELTAFILL_HOST_DEVICE constexpr int TileOffset(int row, int column) {
  if constexpr (width >= 64) {
    return (column >> 6) * (kBlockRows * 128) + row * 128 +
           ((((column & 63) >> 3) ^ (row & 7)) << 4) + (column & 7) * 2;
  } else {
    return row * 64 + (((column >> 3) ^ ((row >> 1) & 3)) << 4) + (column & 7) * 2;
  }
}

template <int K>
struct SlotLayout {
  static constexpr int kKeyTile = kBlockRows * K * 2;
  static constexpr int kSquareTile = kBlockRows * kBlockRows * 2;
  static constexpr int kKe = 0;
  static constexpr int kQe = kKe + kKeyTile;
  static constexpr int kKg = kQe + kKeyTile;
  static constexpr int kT = kKg + kKeyTile;
  static constexpr int kP = kT + kSquareTile;
  static constexpr int kDecay = kP + kSquareTile;
  static constexpr int kBeta = kDecay + K * 4;
  static constexpr int kUsedBytes = kBeta + kBlockRows * 4;
  static constexpr int kBytes = (kUsedBytes + 1023) / 1024 * 1024;
};

constexpr int64_t SlotBytes(int key_dim) {
  return key_dim == 128  ? SlotLayout<128>::kBytes
         : key_dim == 64 ? SlotLayout<64>::kBytes
                         : SlotLayout<32>::kBytes;
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_SLOT_LAYOUT_H_
