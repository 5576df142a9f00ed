// Plans of matrix products, without CUDA calls: which rows go into one library call, which calls an
// algorithm is chosen for, and how an algorithm is proved row-invariant before it is used.
//
// A row of y must have the same bits whatever the call's rows. cuBLASLt chooses by the whole shape,
// so a weight [out, in] is given its algorithms once, when it is made: one for each class of row
// counts. The last class's is the base; another is used only where a probe on the device finds the
// base's bits. No algorithm cuts the sum over `in` into parts.
#ifndef DELTAFILL_KERNELS_CUDA_PRODUCT_PLAN_H_
#define DELTAFILL_KERNELS_CUDA_PRODUCT_PLAN_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/operators.h"

namespace deltafill::kernels::cuda {

// A cuBLASLt algorithm by its configuration attributes, in their order.
struct ProductAlgorithm {
  int32_t id = 0;
  uint32_t tile = 0;
  int32_t split_k = 1;
  uint32_t reduction = 0;
  uint32_t swizzling = 0;
  uint32_t custom_option = 0;
  uint32_t stages = 0;
  uint16_t inner_shape = 0;
  uint16_t cluster_shape = 0;

  bool operator==(const ProductAlgorithm&) const = default;
  std::string ToString() const;
};

// Whether the algorithm says of itself that it adds a sum in one go.
bool IsAllowed(const ProductAlgorithm& algorithm);

// Calls of more than the class before and at most `rows_max` rows; `tuned_rows` is what the library
// is asked to choose for.
struct RowClass {
  int64_t rows_max = 0;
  int64_t tuned_rows = 0;
};
inline constexpr std::array<RowClass, 4> kRowClasses = {
    {{64, 64}, {256, 256}, {1024, 1024}, {16384, 4096}}};
inline constexpr size_t kRowClassCount = kRowClasses.size();

// The class of a call of 1 to the last class's rows_max rows.
size_t RowClassOf(int64_t rows);
// Rows of the next call when `rows_left` >= 1 are left: whole calls of the largest class first.
int64_t NextCallRows(int64_t rows_left);

// A call of the probe: rows [first_row, first_row + rows) of the probe's input.
struct ProbeCall {
  int64_t first_row = 0;
  int64_t rows = 0;
};

struct ProbePlan {
  int64_t rows = 0;  // of the probe's input; its product by the base algorithm is the reference
  // Calls whose bits must be the reference's, by row class; a class has none where its calls are
  // longer than the probe, and then has no algorithm of its own.
  std::vector<std::vector<ProbeCall>> calls;
};

// About kProbeElements outputs, but at least kProbeRowsMin rows.
inline constexpr int64_t kProbeElements = int64_t{1} << 24;
inline constexpr int64_t kProbeRowsMin = 300;
ProbePlan PlanProbe(int64_t out_features);

// What a weight's products run with: the numerics string is made from these lines.
struct ProductChoice {
  int64_t out_features = 0;
  int64_t in_features = 0;
  DType y_dtype = DType::kBF16;
  std::vector<ProductAlgorithm> algorithms;  // by row class

  std::string ToString() const;
};

// 16 hexadecimal digits over the choices' lines, in any order given; the order does not matter.
std::string DigestOf(const std::vector<ProductChoice>& choices);

// "cuda/bf16/sm_90x132/cublaslt-130100/products-<digest>/block64/v8"
std::string CudaNumericsName(int major, int minor, int multiprocessors, size_t library_version,
                             const std::vector<ProductChoice>& choices);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PRODUCT_PLAN_H_
