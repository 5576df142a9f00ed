// Mixture of experts with sigmoid scores and a correction bias for the choice (DeepSeek-V3,
// arXiv:2412.19437, section 2.1.2; Kimi Linear's models). Per row x, in fp32 up to the weights:
//
//   s = sigmoid(R x);  E = the top_k experts by s + bias (ties: the lower index)
//   w_e = s_e, e in E (or s_e + bias_e);  w /= sum w + 1e-20 if renormalize;  w *= routed_scale
//   y += sum_{e in E, ascending} w_e Down_e (silu(Gate_e x) * Up_e x)
//
// No row is dropped, whatever the load of an expert. Row-invariant. A NaN score counts as the
// largest, so that a row with one ends non-finite.
#ifndef DELTAFILL_KERNELS_MIXTURE_OF_EXPERTS_H_
#define DELTAFILL_KERNELS_MIXTURE_OF_EXPERTS_H_

#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace deltafill::kernels {

class Weight;

struct MixtureShape {
  int experts = 0;  // at most 1024
  int top_k = 0;    // in [1, experts]
  int64_t hidden = 0;
  int64_t expert_width = 0;  // of an expert's inner rows
  bool renormalize = true;
  bool biased_weights = false;  // combine with s + bias instead of s: public versions differ
  float routed_scale = 1.0f;
};

struct ExpertWeights {
  const Weight* gate_up = nullptr;  // [2 * expert_width, hidden]: gate rows, then up rows
  const Weight* down = nullptr;     // [hidden, expert_width]
};

struct MixtureParams {
  MixtureShape shape;
  ConstRows x;                             // [rows, hidden]
  const float* router = nullptr;           // [experts, hidden] fp32, in the backend's memory
  const float* correction_bias = nullptr;  // [experts] fp32; nullptr: zeros
  std::span<const ExpertWeights> experts;  // host [experts]
  MutableRows y;                           // [rows, hidden], added to; does not overlap x
  int64_t rows = 0;
  bool step = false;  // a decoding step, as in MatMulParams
};

}  // namespace deltafill::kernels

#endif  // DELTAFILL_KERNELS_MIXTURE_OF_EXPERTS_H_
