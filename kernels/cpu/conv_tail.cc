#include "kernels/cpu/conv_tail.h"

#include "kernels/cpu/prefill_operators.h"

namespace deltafill::kernels::cpu {

void WriteConvTail(const float* x, int64_t row_stride, int64_t tokens, const float* tail_in,
                   int64_t channels, float* tail_out) {
  for (int64_t c = 0; c < channels; ++c) {
    float tail[kConvTailRows];
    for (int i = 0; i < kConvTailRows; ++i) {
      const int64_t row = tokens - kConvTailRows + i;
      if (row >= 0) {
        tail[i] = x[row * row_stride + c];
      } else {
        tail[i] = tail_in != nullptr ? tail_in[c * kConvTailRows + kConvTailRows + row] : 0.0f;
      }
    }
    for (int i = 0; i < kConvTailRows; ++i) tail_out[c * kConvTailRows + i] = tail[i];
  }
}

void ConvTail(const ConvTailParams& params) {
  WriteConvTail(static_cast<const float*>(params.x.data), params.x.row_stride, params.tokens,
                params.tail_in, params.channels, params.tail_out);
}

}  // namespace deltafill::kernels::cpu
