#include "kernels/cuda/tensor_map.h"

#include <cuda_runtime.h>

#include <array>
#include <string>

namespace deltafill::kernels::cuda {
namespace {

constexpr unsigned kDriverVersion = 12000;  // the first with tensor maps
constexpr size_t kDimsMax = 4;

// From the driver itself: nothing links against it.
decltype(&cuTensorMapEncodeTiled) Encoder() {
  static const auto encoder = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &entry, kDriverVersion, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) entry = nullptr;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  }();
  return encoder;
}

}  // namespace

Status MakeTensorMap(const TensorMapShape& shape, TensorMap* out) {
  const auto encode = Encoder();
  if (encode == nullptr) {
    return {StatusCode::kInternal, "cuTensorMapEncodeTiled: the driver does not have it"};
  }
  const size_t rank = shape.dims.size();
  std::array<cuuint64_t, kDimsMax> dims = {};
  std::array<cuuint64_t, kDimsMax> stride_bytes = {};
  std::array<cuuint32_t, kDimsMax> box = {shape.inner_box};
  std::array<cuuint32_t, kDimsMax> steps = {};
  for (size_t i = 0; i < rank; ++i) {
    dims[i] = static_cast<cuuint64_t>(shape.dims[i]);
    steps[i] = 1;
    if (i == 0) continue;
    stride_bytes[i - 1] = static_cast<cuuint64_t>(shape.strides[i - 1]) * 2;
    box[i] = shape.outer_boxes[i - 1];
  }
  const CUtensorMapSwizzle swizzle = shape.inner_box == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : shape.inner_box == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                             : CU_TENSOR_MAP_SWIZZLE_NONE;
  const CUresult result =
      encode(out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(rank),
             const_cast<void*>(shape.start), dims.data(), stride_bytes.data(), box.data(),
             steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  return {StatusCode::kInternal,
          "cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(result))};
}

Status MakeRowsMap(const RowsMapShape& shape, TensorMap* out) {
  const int64_t dims[] = {shape.width, shape.rows};
  const int64_t strides[] = {shape.row_stride};
  const uint32_t boxes[] = {shape.box_rows};
  return MakeTensorMap({shape.start, dims, strides, boxes}, out);
}

}  // namespace deltafill::kernels::cuda
