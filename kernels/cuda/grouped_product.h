// Products of packed rows by their experts' matrices: y[i] = W_e x[i] for the
// rows of each tile of a list on the device, or y[i] = silu(Gate_e x[i]) *
// (Up_e x[i]). bf16 operands and results, fp32 sums over `in` 16 at a time in
// ascending order: a row's bits do not depend on its tile or place.
#ifndef DELTAFILL_KERNELS_CUDA_GROUPED_PRODUCT_H_
#define DELTAFILL_KERNELS_CUDA_GROUPED_PRODUCT_H_

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/grouped_tiles.h"
#include "kernels/cuda/tensor_map.h"

namespace deltafill::kernels::cuda {

struct GroupedProduct {
  const TokenTile* tiles = nullptr;
  GroupedWork* work = nullptr;
  int ticket = 0;                    // the counter of work->tickets that is this product's
  int64_t tiles_max = 0;             // of the list
  const __nv_bfloat16* x = nullptr;  // [x_rows, in_features], dense
  int64_t x_rows = 0;
  int64_t in_features = 0;
  __nv_bfloat16* y = nullptr;  // [x_rows, out_features], dense
  int64_t out_features = 0;    // of y
  bool swiglu = false;         // matrices are [2 * out_features, in_features]: gates, then ups
};

// By mma.sync. matrices: device [experts], each row-major. Any card from sm_80
// on.
cudaError_t LaunchGroupedPortable(const GroupedProduct& product,
                                  const __nv_bfloat16* const* matrices, cudaStream_t stream);

// By WGMMA on tiles that the copy engine brings in (sm_90a): a persistent
// kernel that draws its tiles as tickets. maps: device [experts], made by
// MakeExpertMap. cluster: 1, or 2 CTAs that share each tile of rows, which
// takes less from the second-level cache where tiles have many rows.
Status LaunchGroupedHopper(const GroupedProduct& product, const TensorMap* maps,
                           int multiprocessors, int cluster, cudaStream_t stream);
Status MakeExpertMap(const void* matrix, int64_t out_features, int64_t in_features, bool swiglu,
                     TensorMap* out);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_GROUPED_PRODUCT_H_
