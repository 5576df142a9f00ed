// The CPU operators, one a file. Each takes validated params, runs its rows on the team and cannot
// fail unless it returns a Status. Contracts are those of kernels/operators.h.
//
// Why the bits of a row depend on nothing else: elementwise work is done a row at a time with the
// last vector masked, sums over a row have an order fixed by its width, and products come from
// library calls that always have the same shape.
#ifndef DELTAFILL_KERNELS_CPU_PREFILL_OPERATORS_H_
#define DELTAFILL_KERNELS_CPU_PREFILL_OPERATORS_H_

#include <cstdint>
#include <vector>

#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/thread_team.h"
#include "kernels/cpu/weight.h"
#include "kernels/operators.h"

namespace deltafill::kernels::cpu {

// Memory a lane keeps between calls: one buffer a thread, and one for what all threads read.
struct LaneScratch {
  explicit LaneScratch(int threads) : per_thread(static_cast<size_t>(threads)) {}
  std::vector<AlignedBuffer> per_thread;
  AlignedBuffer shared;
};

// kResourceExhausted if scratch cannot be had, kInternal if oneDNN fails.
Status MatMul(const MatMulParams& params, const CpuWeight& weight, ThreadTeam& team,
              LaneScratch& scratch);
Status ShortConv(const ShortConvParams& params, ThreadTeam& team, LaneScratch& scratch);

void Embedding(const EmbeddingParams& params, const CpuWeight& table, ThreadTeam& team);
void RmsNorm(const RmsNormParams& params, ThreadTeam& team);
void SwiGlu(const SwiGluParams& params, ThreadTeam& team);
void ConvTail(const ConvTailParams& params);

// Row r of a view.
inline const float* RowOf(const ConstRows& rows, int64_t r) {
  return static_cast<const float*>(rows.data) + r * rows.row_stride;
}
inline float* RowOf(const MutableRows& rows, int64_t r) {
  return static_cast<float*>(rows.data) + r * rows.row_stride;
}

// Calls body(begin, end) over pieces of [0, rows) that have enough elements to be worth claiming.
template <typename Body>
void ForRowPieces(int64_t rows, int64_t width, ThreadTeam& team, const Body& body) {
  constexpr int64_t kElementsPerPiece = 16384;
  const int64_t piece = width >= kElementsPerPiece ? 1 : kElementsPerPiece / width;
  team.ParallelFor((rows + piece - 1) / piece, [&](int64_t index, int) {
    const int64_t begin = index * piece;
    body(begin, begin + piece < rows ? begin + piece : rows);
  });
}

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_PREFILL_OPERATORS_H_
