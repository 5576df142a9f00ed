// Lists of the grouped product, as the device makes and reads them.
#ifndef DELTAFILL_KERNELS_CUDA_GROUPED_TILES_H_
#define DELTAFILL_KERNELS_CUDA_GROUPED_TILES_H_

#include <cstdint>

namespace deltafill::kernels::cuda {

// Most rows of a tile.
inline constexpr int kTokenTileRows = 256;

// Rows of one expert, one after the other among the packed rows.
struct alignas(16) TokenTile {
  int32_t expert = 0;
  int32_t first_row = 0;
  int32_t rows = 0;  // 1 to kTokenTileRows
  int32_t unused = 0;
};

struct GroupedWork {
  int32_t tile_count = 0;
  uint32_t tickets[2] = {};  // drawn so far by the first and the second product
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_GROUPED_TILES_H_
