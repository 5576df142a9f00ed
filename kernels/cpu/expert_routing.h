// Which experts a row goes to and with what weights, and the panels that this makes for each
// expert.
#ifndef DELTAFILL_KERNELS_CPU_EXPERT_ROUTING_H_
#define DELTAFILL_KERNELS_CPU_EXPERT_ROUTING_H_

#include <cstdint>
#include <vector>

#include "kernels/cpu/lane_scratch.h"
#include "kernels/cpu/thread_team.h"
#include "kernels/mixture_of_experts.h"
#include "kernels/status.h"

namespace deltafill::kernels::cpu {

// Up to 64 rows of one expert.
struct ExpertPanel {
  int32_t expert = 0;
  int32_t rows = 0;
};

// Of a run of rows. Slot 64 p + i is place i of panel p; panels ascend by expert, and an expert's
// rows ascend over its slots, so a row's slots ascend too.
struct ExpertRouting {
  std::vector<int32_t> experts;      // [rows, top_k], ascending in a row
  std::vector<float> weights;        // [rows, top_k]
  std::vector<int32_t> slots;        // [rows, top_k]
  std::vector<int32_t> row_of_slot;  // [panels * 64]; unused places hold -1
  std::vector<ExpertPanel> panels;
};

size_t RoutingScratchBytes(const MixtureShape& shape);

// Routes rows [first_row, first_row + rows) of params. A thread's scratch has RoutingScratchBytes.
// kInternal if oneDNN fails.
Status RouteRows(const MixtureParams& params, int64_t first_row, int64_t rows, ThreadTeam& team,
                 LaneScratch& scratch, ExpertRouting* routing);

// One row's choice from its logits [experts], which are overwritten: experts [top_k], ascending,
// and weights [top_k]. A NaN counts as the largest score, so that it shows in the output.
void ChooseExperts(const MixtureShape& shape, const float* correction_bias, float* logits,
                   int32_t* experts, float* weights);

// y += weight x
void AddScaledRow(const float* x, float weight, int64_t width, float* y);

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_EXPERT_ROUTING_H_
