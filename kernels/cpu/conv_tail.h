// The short convolution's tail: the last 3 pre-convolution rows, [channels, 3], oldest first.
#ifndef DELTAFILL_KERNELS_CPU_CONV_TAIL_H_
#define DELTAFILL_KERNELS_CPU_CONV_TAIL_H_

#include <cstdint>

namespace deltafill::kernels::cpu {

// tail_out[channels, 3] after `tokens` rows x of one sequence (row_stride elements apart; not read
// if tokens is 0). tail_in: before the first row, nullptr for zeros; may be tail_out.
void WriteConvTail(const float* x, int64_t row_stride, int64_t tokens, const float* tail_in,
                   int64_t channels, float* tail_out);

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_CONV_TAIL_H_
