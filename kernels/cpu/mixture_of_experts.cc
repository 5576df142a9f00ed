// Rows are gathered into 64-row panels an expert, a bounded number of panels is computed at once,
// and their outputs are added to the rows in ascending order of expert.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/expert_routing.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/panel_product.h"
#include "kernels/cpu/prefill_operators.h"

namespace deltafill::kernels::cpu {
namespace {

const CpuWeight& AsCpu(const Weight* weight) { return static_cast<const CpuWeight&>(*weight); }

// Panels that are computed together, and their memory.
struct ExpertWave {
  ExpertWave(const MixtureShape& shape, int64_t panels, void* memory) : cutter(memory) {
    rows = cutter.Cut<float>(panels * kBlockTokens * shape.hidden);
    gate_up = cutter.Cut<float>(panels * kBlockTokens * 2 * shape.expert_width);
    inner = cutter.Cut<float>(panels * kBlockTokens * shape.expert_width);
  }
  ScratchCutter cutter;
  int64_t first_panel = 0;
  int64_t panels = 0;
  float* rows;     // [panels, 64, hidden]: inputs, then outputs
  float* gate_up;  // [panels, 64, 2 * expert_width]
  float* inner;    // [panels, 64, expert_width]
};

int64_t PanelsPerWave(const MixtureShape& shape, int64_t wave_bytes, int threads) {
  const int64_t panel_bytes = static_cast<int64_t>(ExpertWave(shape, 1, nullptr).cutter.bytes());
  return std::max(wave_bytes / panel_bytes, int64_t{threads});
}

// Rows of a wave's panel that are computed: in a step, where panels have few, only those it has.
int64_t RowsComputed(const ExpertRouting& routing, const ExpertWave& wave, int64_t panel,
                     bool step) {
  if (!step) return kBlockTokens;
  return routing.panels[static_cast<size_t>(wave.first_panel + panel)].rows;
}

// The rows that go to panel `panel`; zeros after them unless in a step, which does not read there.
void GatherPanel(const MixtureParams& params, int64_t first_row, const ExpertRouting& routing,
                 int64_t panel, float* to) {
  const int64_t hidden = params.shape.hidden;
  const int64_t rows = routing.panels[static_cast<size_t>(panel)].rows;
  const size_t row_bytes = static_cast<size_t>(hidden) * sizeof(float);
  for (int64_t i = 0; i < rows; ++i) {
    const int32_t row = routing.row_of_slot[static_cast<size_t>(panel * kBlockTokens + i)];
    std::memcpy(to + i * hidden, RowOf(params.x, first_row + row), row_bytes);
  }
  if (params.step) return;
  std::memset(to + rows * hidden, 0, static_cast<size_t>(kBlockTokens - rows) * row_bytes);
}

// to[panels, 64, out] = from[panels, 64, in] times each panel's weight; all weights are alike. Rows
// that are not computed are neither read nor written.
template <typename WeightOf>
Status MultiplyPanels(const ExpertRouting& routing, const ExpertWave& wave, bool step,
                      const float* from, const WeightOf& weight_of, float* to, ThreadTeam& team,
                      LaneScratch& scratch) {
  FirstFailure failure(team.threads());
  const int64_t tiles = weight_of(0).tiles();
  team.ParallelFor(wave.panels * tiles, [&](int64_t index, int thread) {
    const int64_t panel = index / tiles;
    const int64_t tile = index % tiles;
    const CpuWeight& weight = weight_of(panel);
    const int64_t in = weight.in_features();
    const int64_t out = weight.out_features();
    const PanelScratch parts(weight, scratch.OfThread(thread));
    const float* const x = from + panel * kBlockTokens * in;
    const int64_t rows = RowsComputed(routing, wave, panel, step);
    int64_t stride = ProductStride(weight, tile);
    if (step && weight.compute_dtype() == DType::kF32) {
      stride = kTileColumns;
      MultiplyFewRows(weight, tile, x, in, rows, parts.product);
    } else if (!failure.Keep(thread, MultiplyPanel(weight, tile, x, in, rows, parts))) {
      return;
    }
    StorePanel(parts.product, stride, rows, weight.tile_columns(tile), nullptr, false,
               to + panel * kBlockTokens * out + tile * kTileColumns, out);
  });
  return failure.Take();
}

// inner = silu(gate) * up of the rows that are computed.
void ActivatePanels(const ExpertRouting& routing, const ExpertWave& wave, int64_t width, bool step,
                    ThreadTeam& team) {
  const SwiGluParams params = {.gate = {wave.gate_up, DType::kF32, 2 * width},
                               .up = {wave.gate_up + width, DType::kF32, 2 * width},
                               .y = {wave.inner, DType::kF32, width},
                               .rows = wave.panels * kBlockTokens,
                               .width = width};
  if (!step) return SwiGlu(params, team);
  team.ParallelFor(wave.panels, [&](int64_t panel, int) {
    const int64_t begin = panel * kBlockTokens;
    SwiGluOfRows(params, begin, begin + RowsComputed(routing, wave, panel, step));
  });
}

Status ComputeWave(const MixtureParams& params, int64_t first_row, const ExpertRouting& routing,
                   const ExpertWave& wave, ThreadTeam& team, LaneScratch& scratch) {
  const MixtureShape& shape = params.shape;
  const auto expert_of = [&](int64_t panel) -> const ExpertWeights& {
    const int32_t expert = routing.panels[static_cast<size_t>(wave.first_panel + panel)].expert;
    return params.experts[static_cast<size_t>(expert)];
  };
  team.ParallelFor(wave.panels, [&](int64_t panel, int) {
    GatherPanel(params, first_row, routing, wave.first_panel + panel,
                wave.rows + panel * kBlockTokens * shape.hidden);
  });
  Status status = MultiplyPanels(
      routing, wave, params.step, wave.rows,
      [&](int64_t panel) -> const CpuWeight& { return AsCpu(expert_of(panel).gate_up); },
      wave.gate_up, team, scratch);
  if (!status.ok()) return status;
  ActivatePanels(routing, wave, shape.expert_width, params.step, team);
  return MultiplyPanels(
      routing, wave, params.step, wave.inner,
      [&](int64_t panel) -> const CpuWeight& { return AsCpu(expert_of(panel).down); }, wave.rows,
      team, scratch);
}

// Adds the wave's outputs. Slots ascend with the expert, within a wave and from wave to wave.
void CombineWave(const MixtureParams& params, int64_t first_row, int64_t rows,
                 const ExpertRouting& routing, const ExpertWave& wave, ThreadTeam& team) {
  const int64_t top_k = params.shape.top_k;
  const int64_t hidden = params.shape.hidden;
  const int64_t begin_slot = wave.first_panel * kBlockTokens;
  const int64_t end_slot = begin_slot + wave.panels * kBlockTokens;
  ForRowPieces(rows, hidden * top_k, team, [&](int64_t begin, int64_t end) {
    for (int64_t choice = begin * top_k; choice < end * top_k; ++choice) {
      const int64_t slot = routing.slots[static_cast<size_t>(choice)];
      if (slot < begin_slot || slot >= end_slot) continue;
      AddScaledRow(wave.rows + (slot - begin_slot) * hidden,
                   routing.weights[static_cast<size_t>(choice)], hidden,
                   RowOf(params.y, first_row + choice / top_k));
    }
  });
}

}  // namespace

Status MixtureOfExperts(const MixtureParams& params, ThreadTeam& team, LaneScratch& scratch,
                        const MixtureBudget& budget) {
  const MixtureShape& shape = params.shape;
  const size_t thread_bytes =
      std::max({PanelScratch::Bytes(AsCpu(params.experts[0].gate_up)),
                PanelScratch::Bytes(AsCpu(params.experts[0].down)), RoutingScratchBytes(shape)});
  if (Status s = scratch.ReservePerThread(thread_bytes, "mixture of experts"); !s.ok()) return s;
  const int64_t batch =
      std::max(budget.choices / shape.top_k / kBlockTokens, int64_t{1}) * kBlockTokens;
  ExpertRouting routing;
  for (int64_t first_row = 0; first_row < params.rows; first_row += batch) {
    const int64_t rows = std::min(batch, params.rows - first_row);
    if (Status s = RouteRows(params, first_row, rows, team, scratch, &routing); !s.ok()) return s;
    const int64_t panels = static_cast<int64_t>(routing.panels.size());
    const int64_t at_once =
        std::min(PanelsPerWave(shape, budget.wave_bytes, team.threads()), panels);
    const size_t wave_bytes = ExpertWave(shape, at_once, nullptr).cutter.bytes();
    if (Status s = scratch.ReserveShared(wave_bytes, "mixture of experts"); !s.ok()) return s;
    ExpertWave wave(shape, at_once, scratch.shared.as<void>());
    for (; wave.first_panel < panels; wave.first_panel += at_once) {
      wave.panels = std::min(at_once, panels - wave.first_panel);
      if (Status s = ComputeWave(params, first_row, routing, wave, team, scratch); !s.ok()) {
        return s;
      }
      CombineWave(params, first_row, rows, routing, wave, team);
    }
  }
  return {};
}

}  // namespace deltafill::kernels::cpu
