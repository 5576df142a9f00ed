// Moves rows into and out of the 64-row panels that matrix products work on.
#ifndef DELTAFILL_KERNELS_CPU_PANEL_H_
#define DELTAFILL_KERNELS_CPU_PANEL_H_

#include <cstdint>

#include "kernels/tensor.h"

namespace deltafill::kernels::cpu {

// panel[64, width] from `rows` <= 64 rows of x; the other rows are zero.
void PackPanel(const float* x, int64_t row_stride, int64_t rows, int64_t width, float* panel);

// The same, rounded to bf16 (to nearest, ties to even; NaN stays NaN).
void PackPanelBf16(const float* x, int64_t row_stride, int64_t rows, int64_t width,
                   uint16_t* panel);

// y = product (+ bias) (+ y) for `rows` rows of `width`. bias: [width] or nullptr. The additions
// are made one after the other in this order, so they round the same for every row.
void StorePanel(const float* product, int64_t product_stride, int64_t rows, int64_t width,
                const float* bias, bool accumulate, float* y, int64_t row_stride);

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_PANEL_H_
