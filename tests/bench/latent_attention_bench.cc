// Latent attention and mixture of experts on one CPU thread as fractions of the sgemm rate measured
// in the same run, at the sizes of Kimi-Linear-48B (heads 128 + 64, values 128, rank 512; hidden
// 2304, expert width 1024).
//
// FLOP counted are those the equations need, no padding, masked scores or exponentials:
//   attention   2 (192 + 128) a row, head and key it sees
//   expansion   2 * 512 * (128 + 128) a key and head, once a call
//   experts     6 * 2304 * 1024 a row and expert chosen
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/operators.h"
#include "tests/bench/cpu_rate.h"
#include "tests/testing/random.h"

// Of the OpenMP runtime that oneDNN was built with.
extern "C" void omp_set_num_threads(int threads);

namespace deltafill::test {
namespace {

using kernels::DType;

kernels::LatentShape Shape(int heads) {
  return {.heads = heads, .nope_dim = 128, .rope_dim = 64, .value_dim = 128, .rank = 512};
}

// A layer with a random cache.
struct Layer {
  Layer(kernels::Backend& backend, int heads, int64_t tokens) : shape(Shape(heads)) {
    Random random(2);
    const auto w = random.NormalVector(heads * 256 * 512, 0.04);
    Check(backend.NewLatentProjection(w.data(), DType::kF32, shape, &projection));
    const int64_t page_elements = kernels::kLatentPageTokens * shape.LatentWidth();
    for (int64_t token = 0; token < tokens; token += kernels::kLatentPageTokens) {
      pages.push_back(random.NormalVector(page_elements));
    }
    for (auto& page : pages) pointers.push_back(page.data());
  }
  kernels::LatentShape shape;
  std::unique_ptr<kernels::LatentProjection> projection;
  std::vector<std::vector<float>> pages;
  std::vector<void*> pointers;
};

void RunPrefill(kernels::Backend& backend, kernels::Operators& lane, int heads, int64_t before,
                int64_t rows, double sgemm) {
  Layer layer(backend, heads, before + rows);
  Random random(3);
  const auto q = random.NormalVector(rows * layer.shape.QueryWidth());
  std::vector<float> o(static_cast<size_t>(rows * layer.shape.OutputWidth()));
  const int64_t offsets[] = {0, rows};
  const kernels::LatentSequence sequences[] = {{layer.pointers, before}};
  const double seconds = ShortestSeconds([&] {
    Check(lane.LatentPrefill({.projection = layer.projection.get(),
                              .q = {q.data(), DType::kF32, layer.shape.QueryWidth()},
                              .offsets = offsets,
                              .sequences = sequences,
                              .o = {o.data(), DType::kF32, layer.shape.OutputWidth()}}));
  });
  const double pairs = static_cast<double>(rows) * before + 0.5 * rows * (rows + 1);
  const double attention = pairs * heads * 2.0 * (192 + 128);
  const double expansion = static_cast<double>(before + rows) * heads * 2.0 * 512 * 256;
  std::printf("| prefill, %d heads, %ld rows after %ld | %.1f | %.1f | %.0f %% | %.0f %% |\n",
              heads, rows, before, seconds * 1e3, (attention + expansion) / seconds * 1e-9,
              100.0 * (attention + expansion) / seconds / sgemm,
              100.0 * attention / seconds / sgemm);
}

void RunStep(kernels::Backend& backend, kernels::Operators& lane, int64_t context, double sgemm) {
  Layer layer(backend, 32, context);
  Random random(4);
  const auto q = random.NormalVector(layer.shape.QueryWidth());
  std::vector<float> o(static_cast<size_t>(layer.shape.OutputWidth()));
  const kernels::LatentSequence sequences[] = {{layer.pointers, context - 1}};
  const double seconds = ShortestSeconds([&] {
    Check(lane.LatentStep({.projection = layer.projection.get(),
                           .q = {q.data(), DType::kF32, layer.shape.QueryWidth()},
                           .sequences = sequences,
                           .o = {o.data(), DType::kF32, layer.shape.OutputWidth()}}));
  });
  const double flop = 32 * (2.0 * context * (576 + 512) + 2.0 * 512 * 256);
  std::printf("| step, 32 heads, %ld tokens | %.2f | %.1f | %.0f %% | |\n", context, seconds * 1e3,
              flop / seconds * 1e-9, 100.0 * flop / seconds / sgemm);
}

void RunExperts(kernels::Backend& backend, kernels::Operators& lane, int experts, int top_k,
                int64_t rows, double sgemm) {
  constexpr int64_t kHidden = 2304;
  constexpr int64_t kWidth = 1024;
  Random random(5);
  std::vector<std::unique_ptr<kernels::Weight>> matrices;
  std::vector<kernels::ExpertWeights> weights;
  // Contents do not matter for the time: all experts are made from the same numbers.
  const auto w = random.NormalVector(2 * kWidth * kHidden, 0.02);
  for (int e = 0; e < experts; ++e) {
    for (const auto& [out, in] : {std::pair{2 * kWidth, kHidden}, std::pair{kHidden, kWidth}}) {
      matrices.emplace_back();
      Check(backend.NewWeight(w.data(), DType::kF32, out, in, &matrices.back()));
    }
    weights.push_back({matrices[matrices.size() - 2].get(), matrices.back().get()});
  }
  const auto router = random.NormalVector(experts * kHidden, 0.02);
  const auto x = random.NormalVector(rows * kHidden);
  std::vector<float> y(x.size());
  const double seconds = ShortestSeconds([&] {
    Check(lane.MixtureOfExperts(
        {.shape = {.experts = experts, .top_k = top_k, .hidden = kHidden, .expert_width = kWidth},
         .x = {x.data(), DType::kF32, kHidden},
         .router = router.data(),
         .experts = weights,
         .y = {y.data(), DType::kF32, kHidden},
         .rows = rows}));
  });
  const double flop = static_cast<double>(rows) * top_k * 6.0 * kHidden * kWidth;
  std::printf("| experts, %d of %d, %ld rows (%ld an expert) | %.1f | %.1f | %.0f %% | |\n", top_k,
              experts, rows, rows * top_k / experts, seconds * 1e3, flop / seconds * 1e-9,
              100.0 * flop / seconds / sgemm);
}

int Main() {
  const char* isa = std::getenv("DELTAFILL_BENCH_ISA");
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<kernels::Operators> lane;
  Check(kernels::NewCpuBackend({.isa = isa != nullptr ? isa : ""}, &backend));
  Check(backend->NewOperators(1, &lane));
  const double sgemm = 1e9 * SgemmRate(1024, 1024, 1024);  // FLOP/s
  std::printf(
      "| one thread, %s | ms | GFLOP/s | of sgemm | attention alone |\n|---|---|---|---|---|\n",
      backend->numerics().c_str());
  std::printf("| sgemm 1024^3 | %.1f | %.1f | 100 %% | |\n", 2.0 * 1073741824 / sgemm * 1e3,
              sgemm * 1e-9);
  for (const auto& [before, rows] :
       {std::pair<int64_t, int64_t>{0, 512}, {4096, 512}, {4096, 2048}, {32768, 512}}) {
    RunPrefill(*backend, *lane, 4, before, rows, sgemm);
  }
  RunStep(*backend, *lane, 4096, sgemm);
  RunStep(*backend, *lane, 32768, sgemm);
  RunExperts(*backend, *lane, 16, 4, 512, sgemm);
  RunExperts(*backend, *lane, 16, 4, 64, sgemm);
  return 0;
}

}  // namespace
}  // namespace deltafill::test

int main() {
  omp_set_num_threads(1);
  return deltafill::test::Main();
}
