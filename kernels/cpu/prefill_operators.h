// The CPU operators, one a file. Each takes validated params, runs its rows on the team and cannot
// fail unless it returns a Status. Contracts are those of kernels/operators.h.
//
// Why the bits of a row depend on nothing else: elementwise work is done a row at a time with the
// last vector masked, sums over a row have an order fixed by its width, and products come from
// library calls that always have the same shape.
#ifndef DELTAFILL_KERNELS_CPU_PREFILL_OPERATORS_H_
#define DELTAFILL_KERNELS_CPU_PREFILL_OPERATORS_H_

#include <cstdint>

#include "kernels/cpu/lane_scratch.h"
#include "kernels/cpu/thread_team.h"
#include "kernels/cpu/weight.h"
#include "kernels/operators.h"

namespace deltafill::kernels::cpu {

// kResourceExhausted if scratch cannot be had, kInternal if oneDNN fails.
Status MatMul(const MatMulParams& params, const CpuWeight& weight, ThreadTeam& team,
              LaneScratch& scratch);
// fp32 weights only.
Status MatMulStep(const MatMulParams& params, const CpuWeight& weight, ThreadTeam& team,
                  LaneScratch& scratch);
Status ShortConv(const ShortConvParams& params, ThreadTeam& team, LaneScratch& scratch);

// What a mixture of experts holds at once. Does not show in the bits.
struct MixtureBudget {
  int64_t choices = int64_t{1} << 17;      // rows times top_k that are routed; at least 64 rows
  int64_t wave_bytes = int64_t{64} << 20;  // of panels in work; at least one a thread
};
Status MixtureOfExperts(const MixtureParams& params, ThreadTeam& team, LaneScratch& scratch,
                        const MixtureBudget& budget = {});

void Embedding(const EmbeddingParams& params, const CpuWeight& table, ThreadTeam& team);
void RmsNorm(const RmsNormParams& params, ThreadTeam& team);
void SwiGlu(const SwiGluParams& params, ThreadTeam& team);
void ConvTail(const ConvTailParams& params);

// Rows [begin, end) of the operator, on the calling thread.
void RmsNormOfRows(const RmsNormParams& params, int64_t begin, int64_t end);
void SwiGluOfRows(const SwiGluParams& params, int64_t begin, int64_t end);

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
