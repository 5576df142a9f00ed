// Tensor maps of the copy engine (sm_90), made on the host.
#ifndef DELTAFILL_KERNELS_CUDA_TENSOR_MAP_H_
#define DELTAFILL_KERNELS_CUDA_TENSOR_MAP_H_

#include <cuda.h>

#include <cstdint>
#include <span>

#include "kernels/status.h"

namespace deltafill::kernels::cuda {

using TensorMap = CUtensorMap;

// A bf16 tensor whose innermost dim is dense; its boxes are 64 or 32 elements wide and lie in
// shared memory as rows of 128 or 64 bytes, in the swizzle of as many, or any, without a
// swizzle. What lies outside the tensor is zeros when it is read, and not written.
struct TensorMapShape {
  const void* start = nullptr;            // device, aligned to 16 bytes
  std::span<const int64_t> dims;          // innermost first, 2 to 4
  std::span<const int64_t> strides;       // of the outer dims, in elements; multiples of 8
  std::span<const uint32_t> outer_boxes;  // of the outer dims
  uint32_t inner_box = 64;  // of the innermost dim: 32, 64, or a multiple of 8 up to 256
};

// kInternal with the driver's code if it refuses, or has no tensor maps.
Status MakeTensorMap(const TensorMapShape& shape, TensorMap* out);

// Of a matrix, in boxes of so many rows. Errors as MakeTensorMap.
struct RowsMapShape {
  const void* start = nullptr;  // device, aligned to 16 bytes
  int64_t rows = 0;
  int64_t width = 0;
  int64_t row_stride = 0;  // in elements; a multiple of 8
  uint32_t box_rows = 0;
};
Status MakeRowsMap(const RowsMapShape& shape, TensorMap* out);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_TENSOR_MAP_H_
