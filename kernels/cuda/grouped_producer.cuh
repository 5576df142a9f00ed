// The thread of the grouped product that draws tiles and has the copy engine
// bring them in.
#ifndef DELTAFILL_KERNELS_CUDA_GROUPED_PRODUCER_CUH_
#define DELTAFILL_KERNELS_CUDA_GROUPED_PRODUCER_CUH_

#include "kernels/cuda/grouped_hopper_shared.cuh"

namespace deltafill::kernels::cuda {

template <bool swiglu, int cluster>
struct GroupedProducer {
  static constexpr int kFeatures = swiglu ? kProductMatrixRows / 2 : kProductMatrixRows;

  const GroupedHopperParams& p;
  GroupedShared& s;
  uint32_t rank;  // of the CTA
  ProductStage stage;
  uint32_t tickets;  // that there are

  // The first CTA of a cluster draws and hands on, the second takes: both see
  // the same tickets.
  __device__ __forceinline__ uint32_t Draw() const {
    return rank == 0 ? atomicAdd(&p.work->tickets[p.ticket], 1u) : 0;
  }
  __device__ __forceinline__ uint32_t Share(uint32_t number, uint32_t ticket) const {
    if constexpr (cluster == 1) return ticket;
    const uint32_t slot = SharedAddress(&s.tickets[number % kGroupedTickets]);
    if (rank == 0) {
      StoreAt(slot, 1, static_cast<uint64_t>(number + 1) << 32 | ticket);
      return ticket;
    }
    uint64_t word = LoadPolled(slot);
    while (word >> 32 != number + 1) word = LoadPolled(slot);
    return static_cast<uint32_t>(word);
  }
  __device__ __forceinline__ TokenTile TileOf(uint32_t ticket) const {
    return ticket < tickets ? p.tiles[ticket / p.feature_groups] : TokenTile{};
  }

  __device__ __forceinline__ void CopyMatrix(const TensorMap* map, int depth, int first_feature,
                                             uint32_t to, uint32_t barrier) const {
    if constexpr (swiglu) {
#pragma unroll
      for (int i = 0; i < kFeatures / 8; ++i) {
        TensorCopy(to + i * 2048, map, depth, first_feature + i * 8, 0, barrier);
      }
    } else {
      TensorCopy(to, map, depth, first_feature, barrier);
    }
  }

  __device__ __forceinline__ void CopyRows(const GroupedTask& task, int depth, uint32_t to,
                                           uint32_t barrier) const {
    const bool few = task.padded_rows < kRowsBox;
    const TensorMap* const map = few ? &p.few_rows : &p.rows;
    const int box = few ? kFewRowsBox : kRowsBox;
    // A cluster's CTAs take turns; each box goes to both.
    for (int row = static_cast<int>(rank) * box; row < task.padded_rows; row += cluster * box) {
      if constexpr (cluster == 1) {
        TensorCopy(to + row * 128, map, depth, task.first_row + row, barrier);
      } else {
        TensorCopyToAll(to + row * 128, map, depth, task.first_row + row, barrier, 3);
      }
    }
  }

  __device__ __forceinline__ void CopyTile(const TensorMap* map, const GroupedTask& task) {
    for (int block = 0; block < p.depth_blocks; ++block) {
      const uint32_t filled = SharedAddress(&s.barriers.filled[stage.index]);
      stage.WaitUntilEmptied(s.barriers);
      if (block == 0) s.tasks[stage.index] = task;
      BarrierExpect(filled, kProductMatrixBytes + task.padded_rows * 128);
      CopyMatrix(map, block * 64, task.first_feature, s.Matrix(stage.index), filled);
      CopyRows(task, block * 64, s.Rows(stage.index), filled);
      stage.Step();
    }
  }

  // Tickets are drawn two tiles ahead and their tiles read one ahead: neither
  // is waited for.
  __device__ __forceinline__ void Run() {
    tickets = static_cast<uint32_t>(p.work->tile_count * p.feature_groups);
    uint32_t ticket = Share(0, Draw()), next = Share(1, Draw());
    TokenTile tile = TileOf(ticket);
    for (uint32_t number = 2; ticket < tickets; ++number) {
      const TokenTile next_tile = TileOf(next);
      const uint32_t after = Draw();
      const TensorMap* const map = p.matrices + tile.expert;
      FenceTensorMap(map);
      const uint32_t feature_tile = ticket % p.feature_groups * cluster + rank;
      const int first_feature = static_cast<int>(feature_tile) * kFeatures;
      CopyTile(map, {tile.first_row, tile.rows, first_feature, PaddedRows(tile.rows)});
      ticket = next;
      tile = next_tile;
      next = Share(number, after);
    }
    stage.WaitUntilEmptied(s.barriers);
    s.tasks[stage.index] = {};
    BarrierArrive(SharedAddress(&s.barriers.filled[stage.index]));
  }
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_GROUPED_PRODUCER_CUH_
