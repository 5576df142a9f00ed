// Fetches the next block's rows into the cache while the current block is computed. A head's rows
// are far apart in memory (all heads lie between them), which defeats the hardware's prefetching.
#ifndef DELTAFILL_KERNELS_CPU_DELTA_RULE_PREFETCH_H_
#define DELTAFILL_KERNELS_CPU_DELTA_RULE_PREFETCH_H_

#include <cstdint>

#include "kernels/cpu/delta_rule_head.h"

namespace deltafill::kernels::cpu {

class RowPrefetch {
 public:
  // Rows [row, row + count) of the run; spread over `slots` calls of Next.
  RowPrefetch(const HeadRun& run, int64_t row, int count, int slots) : count_(count) {
    const DeltaRuleShape& shape = run.shape;
    const bool scalar_gate =
        shape.gate == GateKind::kScalarSoftplus || shape.gate == GateKind::kScalarPreactivated;
    const int gate_width = shape.gate == GateKind::kNone ? 0 : scalar_gate ? 1 : shape.key_dim;
    Add(run.in.k, run.in.k_stride, row, shape.key_dim);
    if (run.o != nullptr) Add(run.in.q, run.in.q_stride, row, shape.key_dim);
    if (gate_width > 0) Add(run.in.f, run.in.f_stride, row, gate_width);
    Add(run.in.v, run.in.v_stride, row, shape.value_dim);
    if (run.o != nullptr) Add(run.o, run.o_stride, row, shape.value_dim);
    const int pieces = arrays_ * count_;
    per_slot_ = (pieces + slots - 1) / slots;
  }

  // Fetches the next few rows, if any are left.
  void Next() {
    for (int i = 0; i < per_slot_ && row_ < count_; ++i) {
      const Array& array = array_[next_array_];
      const char* at = array.first + row_ * array.stride_bytes;
      for (int64_t byte = 0; byte < array.row_bytes; byte += 64)
        __builtin_prefetch(at + byte, 0, 2);
      if (++next_array_ == arrays_) {
        next_array_ = 0;
        ++row_;
      }
    }
  }

 private:
  struct Array {
    const char* first = nullptr;
    int64_t stride_bytes = 0;
    int64_t row_bytes = 0;
  };

  void Add(const float* rows, int64_t stride, int64_t row, int64_t width) {
    array_[arrays_++] = {reinterpret_cast<const char*>(rows + row * stride), stride * 4, width * 4};
  }

  Array array_[5];
  int arrays_ = 0;
  int count_ = 0;
  int row_ = 0;
  int next_array_ = 0;
  int per_slot_ = 0;
};

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_DELTA_RULE_PREFETCH_H_
