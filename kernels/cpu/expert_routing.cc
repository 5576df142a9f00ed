#include "kernels/cpu/expert_routing.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/expert_validation.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/panel_product.h"
#include "kernels/cpu/prefill_operators.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/expert_routing.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void SigmoidRow(int64_t width, float* x) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < width; i += lanes) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(std::min(lanes, width - i)));
    hn::BlendedStore(Sigmoid(d, hn::MaskedLoad(mask, d, x + i)), mask, d, x + i);
  }
}

void AddScaled(const float* x, float weight, int64_t width, float* y) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto w = hn::Set(d, weight);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    hn::StoreU(hn::MulAdd(w, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  }
  if (i < width) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(width - i));
    const auto sum = hn::MulAdd(w, hn::MaskedLoad(mask, d, x + i), hn::MaskedLoad(mask, d, y + i));
    hn::BlendedStore(sum, mask, d, y + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafill::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafill::kernels::cpu {

HWY_EXPORT(SigmoidRow);
HWY_EXPORT(AddScaled);

namespace {

// Scratch of a thread that routes.
struct RouterScratch {
  RouterScratch(const MixtureShape& shape, void* memory) : cutter(memory) {
    panel = cutter.Cut<float>(kBlockTokens * shape.hidden);
    logits = cutter.Cut<float>(kBlockTokens * shape.experts);
  }
  ScratchCutter cutter;
  float* panel;
  float* logits;
};

// Whether score a of an expert is chosen before score b of one with a higher index.
bool ChosenBefore(float a, float b) { return std::isnan(a) || a >= b; }

// Lays out panels and slots from the experts of all rows.
void MakePanels(const MixtureShape& shape, int64_t rows, ExpertRouting* routing) {
  std::vector<int64_t> count(static_cast<size_t>(shape.experts), 0);
  for (int32_t expert : routing->experts) ++count[static_cast<size_t>(expert)];
  routing->panels.clear();
  std::vector<int64_t> next_slot(static_cast<size_t>(shape.experts), 0);
  for (int32_t expert = 0; expert < shape.experts; ++expert) {
    next_slot[static_cast<size_t>(expert)] =
        static_cast<int64_t>(routing->panels.size()) * kBlockTokens;
    for (int64_t left = count[static_cast<size_t>(expert)]; left > 0; left -= kBlockTokens) {
      routing->panels.push_back({expert, static_cast<int32_t>(std::min(left, kBlockTokens))});
    }
  }
  routing->row_of_slot.assign(routing->panels.size() * static_cast<size_t>(kBlockTokens), -1);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = row * shape.top_k; k < (row + 1) * shape.top_k; ++k) {
      const size_t at = static_cast<size_t>(k);
      const int64_t slot = next_slot[static_cast<size_t>(routing->experts[at])]++;
      routing->slots[at] = static_cast<int32_t>(slot);
      routing->row_of_slot[static_cast<size_t>(slot)] = static_cast<int32_t>(row);
    }
  }
}

}  // namespace

size_t RoutingScratchBytes(const MixtureShape& shape) {
  return RouterScratch(shape, nullptr).cutter.bytes();
}

void ChooseExperts(const MixtureShape& shape, const float* correction_bias, float* logits,
                   int32_t* experts, float* weights) {
  float* const scores = logits;
  HWY_DYNAMIC_DISPATCH(SigmoidRow)(shape.experts, scores);
  // The best so far, in order of choice.
  std::array<float, kExpertsMax> best;
  std::array<int32_t, kExpertsMax> chosen;
  int held = 0;
  for (int32_t expert = 0; expert < shape.experts; ++expert) {
    const float score =
        correction_bias != nullptr ? scores[expert] + correction_bias[expert] : scores[expert];
    int at = held;
    while (at > 0 && !ChosenBefore(best[static_cast<size_t>(at - 1)], score)) --at;
    if (at == shape.top_k) continue;
    held = std::min(held + 1, shape.top_k);
    for (int i = held - 1; i > at; --i) {
      best[static_cast<size_t>(i)] = best[static_cast<size_t>(i - 1)];
      chosen[static_cast<size_t>(i)] = chosen[static_cast<size_t>(i - 1)];
    }
    best[static_cast<size_t>(at)] = score;
    chosen[static_cast<size_t>(at)] = expert;
  }
  std::sort(chosen.begin(), chosen.begin() + shape.top_k);
  float sum = 0.0f;
  for (int k = 0; k < shape.top_k; ++k) {
    const int32_t expert = chosen[static_cast<size_t>(k)];
    experts[k] = expert;
    weights[k] = scores[expert];
    if (shape.biased_weights && correction_bias != nullptr) weights[k] += correction_bias[expert];
    sum += weights[k];
  }
  const float divisor = shape.renormalize ? sum + 1e-20f : 1.0f;
  for (int k = 0; k < shape.top_k; ++k) weights[k] = weights[k] / divisor * shape.routed_scale;
}

Status RouteRows(const MixtureParams& params, int64_t first_row, int64_t rows, ThreadTeam& team,
                 LaneScratch& scratch, ExpertRouting* routing) {
  const MixtureShape& shape = params.shape;
  const size_t choices = static_cast<size_t>(rows * shape.top_k);
  routing->experts.resize(choices);
  routing->weights.resize(choices);
  routing->slots.resize(choices);
  FirstFailure failure(team.threads());
  team.ParallelFor((rows + kBlockTokens - 1) / kBlockTokens, [&](int64_t panel, int thread) {
    const RouterScratch parts(shape, scratch.OfThread(thread));
    const int64_t first = panel * kBlockTokens;
    const int64_t count = std::min(kBlockTokens, rows - first);
    PackPanel(RowOf(params.x, first_row + first), params.x.row_stride, count, shape.hidden,
              parts.panel);
    if (!failure.Keep(thread, Multiply({.rows = kBlockTokens,
                                        .columns = shape.experts,
                                        .depth = shape.hidden,
                                        .a = parts.panel,
                                        .a_stride = shape.hidden,
                                        .b = params.router,
                                        .b_stride = shape.hidden,
                                        .b_transposed = true,
                                        .c = parts.logits,
                                        .c_stride = shape.experts}))) {
      return;
    }
    for (int64_t row = 0; row < count; ++row) {
      const int64_t at = (first + row) * shape.top_k;
      ChooseExperts(shape, params.correction_bias, parts.logits + row * shape.experts,
                    routing->experts.data() + at, routing->weights.data() + at);
    }
  });
  if (Status status = failure.Take(); !status.ok()) return status;
  MakePanels(shape, rows, routing);
  return {};
}

void AddScaledRow(const float* x, float weight, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(x, weight, width, y);
}

}  // namespace deltafill::kernels::cpu
#endif  // HWY_ONCE
