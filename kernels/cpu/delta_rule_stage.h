// Copies the next block's rows into the scratch while the current block is computed.
//
// A head's rows are far apart, all heads lying between them, and mostly at a power of two: they
// miss the hardware's prefetching and crowd into few cache sets, where a plain prefetch of a whole
// block would evict itself. So one row is fetched, and copied to its place a little later.
#ifndef DELTAFILL_KERNELS_CPU_DELTA_RULE_STAGE_H_
#define DELTAFILL_KERNELS_CPU_DELTA_RULE_STAGE_H_

#include <cstdint>
#include <cstring>

#include "kernels/cpu/delta_rule_head.h"

namespace deltafill::kernels::cpu {

// Of rows [row, row + count) of a run: q, k, f and beta.
class RowStage {
 public:
  // Next is to be called about `calls` times.
  RowStage(const HeadRun& run, int64_t row, int count, int calls, BlockScratch& scratch)
      : count_(count), rows_per_call_((count + calls - 1) / calls) {
    const HeadRows& in = run.in;
    Add(in.k, in.k_stride, row, run.shape.key_dim, scratch.raw_key[0], kMaxDim);
    if (run.o != nullptr) {
      Add(in.q, in.q_stride, row, run.shape.key_dim, scratch.raw_query[0], kMaxDim);
    }
    if (in.f != nullptr) Add(in.f, in.f_stride, row, in.f_width, scratch.raw_gate[0], kMaxDim);
    if (in.beta != nullptr) Add(in.beta, in.beta_stride, row, 1, scratch.raw_beta, 1);
  }

  // Fetches the next row and copies the one before.
  void Next() {
    for (int i = 0; i < rows_per_call_ && copied_ < count_; ++i) {
      if (fetched_ > copied_) CopyRow();
      if (fetched_ < count_) FetchRow();
    }
  }

  // Copies what is left.
  void Finish() {
    while (copied_ < count_) CopyRow();
  }

 private:
  struct Rows {
    const float* from = nullptr;
    int64_t from_stride = 0;
    float* to = nullptr;
    int64_t to_stride = 0;
    int width = 0;
  };

  void Add(const float* from, int64_t from_stride, int64_t row, int width, float* to,
           int64_t to_stride) {
    arrays_[array_count_++] = {from + row * from_stride, from_stride, to, to_stride, width};
  }

  void FetchRow() {
    for (int a = 0; a < array_count_; ++a) {
      const float* row = arrays_[a].from + fetched_ * arrays_[a].from_stride;
      for (int c = 0; c < arrays_[a].width; c += 16) __builtin_prefetch(row + c);
    }
    ++fetched_;
  }

  void CopyRow() {
    for (int a = 0; a < array_count_; ++a) {
      const Rows& rows = arrays_[a];
      std::memcpy(rows.to + copied_ * rows.to_stride, rows.from + copied_ * rows.from_stride,
                  sizeof(float) * static_cast<size_t>(rows.width));
    }
    ++copied_;
  }

  Rows arrays_[4];
  int array_count_ = 0;
  int count_;
  int rows_per_call_;
  int fetched_ = 0;
  int copied_ = 0;
};

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_DELTA_RULE_STAGE_H_
