// Shared memory of the Hopper latent attention's CTA, and the thread that fills it.
#ifndef DELTAFILL_KERNELS_CUDA_LATENT_HOPPER_SHARED_CUH_
#define DELTAFILL_KERNELS_CUDA_LATENT_HOPPER_SHARED_CUH_

#include "kernels/cuda/latent_hopper.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/tensor_copy.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace deltafill::kernels::cuda {

inline constexpr int kAttendStages = 2;
inline constexpr int kAttendWarps = 8;                        // that multiply
inline constexpr int kAttendPanel = kLatentHopperRows * 128;  // bytes of 64 columns
inline constexpr int kAttendQueryPanels = 3, kAttendValuePanels = 2;

struct alignas(1024) AttendHopperShared {
  uint8_t q[kAttendQueryPanels][kAttendPanel];
  uint8_t k[kAttendStages][kAttendQueryPanels][kAttendPanel];
  uint8_t v[kAttendStages][kAttendValuePanels][kAttendPanel];
  uint64_t q_filled;
  uint64_t k_filled[kAttendStages], k_emptied[kAttendStages];
  uint64_t v_filled[kAttendStages], v_emptied[kAttendStages];

  __device__ __forceinline__ void Init() {
    BarrierInit(SharedAddress(&q_filled), 1);
    for (int i = 0; i < kAttendStages; ++i) {
      BarrierInit(SharedAddress(&k_filled[i]), 1);
      BarrierInit(SharedAddress(&v_filled[i]), 1);
      BarrierInit(SharedAddress(&k_emptied[i]), kAttendWarps);
      BarrierInit(SharedAddress(&v_emptied[i]), kAttendWarps);
    }
    FenceBarrierInit();
    FenceAsync();
  }
};
static_assert(sizeof(AttendHopperShared) <= 227 * 1024);

// Stage and parity of a tile.
__device__ __forceinline__ int AttendStage(int tile) { return tile % kAttendStages; }
__device__ __forceinline__ uint32_t AttendParity(int tile) { return tile / kAttendStages & 1; }

// Brings in the CTA's rows, then `tiles` tiles of keys and values.
__device__ __forceinline__ void FillAttendTiles(const LatentHopperParams& p, AttendHopperShared& s,
                                                int first_row, int head, int tiles) {
  const uint32_t q_filled = SharedAddress(&s.q_filled);
  BarrierExpect(q_filled, kAttendQueryPanels * kAttendPanel);
  for (int i = 0; i < kAttendQueryPanels; ++i) {
    TensorCopy(SharedAddress(s.q[i]), &p.q, head * 192 + i * 64, first_row, q_filled);
  }
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = AttendStage(tile), key = tile * kLatentHopperRows;
    const uint32_t parity = AttendParity(tile) ^ 1;
    const uint32_t k_filled = SharedAddress(&s.k_filled[stage]);
    BarrierWait(SharedAddress(&s.k_emptied[stage]), parity);
    BarrierExpect(k_filled, kAttendQueryPanels * kAttendPanel);
    TensorCopy(SharedAddress(s.k[stage][0]), &p.expanded, head * 256, key, k_filled);
    TensorCopy(SharedAddress(s.k[stage][1]), &p.expanded, head * 256 + 64, key, k_filled);
    TensorCopy(SharedAddress(s.k[stage][2]), &p.rope, 0, key, k_filled);
    const uint32_t v_filled = SharedAddress(&s.v_filled[stage]);
    BarrierWait(SharedAddress(&s.v_emptied[stage]), parity);
    BarrierExpect(v_filled, kAttendValuePanels * kAttendPanel);
    TensorCopy(SharedAddress(s.v[stage][0]), &p.expanded, head * 256 + 128, key, v_filled);
    TensorCopy(SharedAddress(s.v[stage][1]), &p.expanded, head * 256 + 192, key, v_filled);
  }
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_LATENT_HOPPER_SHARED_CUH_
