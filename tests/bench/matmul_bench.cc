// Rate of the CPU backend's matrix products in panels of 64 rows, in GFLOP/s and as a fraction of
// what one large oneDNN fp32 product gets on as many threads (times one thread's rate).
// DELTAFILL_BENCH_ISA=avx2 pins the instruction set.
#include <benchmark/benchmark.h>
#include <oneapi/dnnl/dnnl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/operators.h"

extern "C" void omp_set_num_threads(int threads);

namespace {

using namespace deltafill::kernels;

constexpr int64_t kRows = 1024;

double Flops(int64_t rows, int64_t out, int64_t in) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in);
}

// Best of five 2048^3 fp32 products on one thread, FLOP/s.
double LargeProductRate() {
  static const double rate = [] {
    constexpr int64_t kSize = 2048;
    const std::vector<float> a(kSize * kSize, 0.5f);
    std::vector<float> c(kSize * kSize);
    omp_set_num_threads(1);
    double best_s = 1e9;
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      dnnl_sgemm('N', 'N', kSize, kSize, kSize, 1.0f, a.data(), kSize, a.data(), kSize, 0.0f,
                 c.data(), kSize);
      best_s = std::min(
          best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return Flops(kSize, kSize, kSize) / best_s;
  }();
  return rate;
}

void BM_MatMul(benchmark::State& state) {
  const int64_t out = state.range(0);
  const int64_t in = state.range(1);
  const int threads = static_cast<int>(state.range(2));
  const DType dtype = state.range(3) == 0 ? DType::kF32 : DType::kBF16;
  const char* isa = std::getenv("DELTAFILL_BENCH_ISA");
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Operators> lane;
  std::unique_ptr<Weight> weight;
  const std::vector<float> w(static_cast<size_t>(out * in), 0.01f);
  const std::vector<float> x(static_cast<size_t>(kRows * in), 0.5f);
  std::vector<float> y(static_cast<size_t>(kRows * out));
  Status status =
      NewCpuBackend({.compute_dtype = dtype, .isa = isa != nullptr ? isa : ""}, &backend);
  if (status.ok()) status = backend->NewOperators(threads, &lane);
  if (status.ok()) status = backend->NewWeight(w.data(), DType::kF32, out, in, &weight);
  if (!status.ok()) return state.SkipWithError(status.message().c_str());
  state.SetLabel(backend->numerics());

  const MatMulParams params{.x = {x.data(), DType::kF32, in},
                            .weight = weight.get(),
                            .y = {y.data(), DType::kF32, out},
                            .rows = kRows};
  for (auto _ : state) {
    status = lane->MatMul(params);
    if (!status.ok()) return state.SkipWithError(status.message().c_str());
  }
  const double flops = Flops(kRows, out, in) * static_cast<double>(state.iterations());
  state.counters["GFLOPs"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsRate);
  state.counters["of_sgemm"] =
      benchmark::Counter(flops / (LargeProductRate() * threads), benchmark::Counter::kIsRate);
}

// Bytes a second that this thread reads from memory, best of five passes over 512 MiB.
double ReadRate() {
  static const double rate = [] {
    const std::vector<uint64_t> memory(size_t{64} << 20, 1);
    double best_s = 1e9;
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      benchmark::DoNotOptimize(std::accumulate(memory.begin(), memory.end(), uint64_t{0}));
      best_s = std::min(
          best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return static_cast<double>(memory.size() * sizeof(uint64_t)) / best_s;
  }();
  return rate;
}

// A decoding step's product: limited by reading the weights, 256 MiB here so that caches don't
// help.
void BM_MatMulStep(benchmark::State& state) {
  constexpr int64_t kOut = 16384;
  constexpr int64_t kIn = 4096;
  const int64_t rows = state.range(0);
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Operators> lane;
  std::unique_ptr<Weight> weight;
  const std::vector<float> w(static_cast<size_t>(kOut * kIn), 0.01f);
  const std::vector<float> x(static_cast<size_t>(rows * kIn), 0.5f);
  std::vector<float> y(static_cast<size_t>(rows * kOut));
  Status status = NewCpuBackend({}, &backend);
  if (status.ok()) status = backend->NewOperators(1, &lane);
  if (status.ok()) status = backend->NewWeight(w.data(), DType::kF32, kOut, kIn, &weight);
  if (!status.ok()) return state.SkipWithError(status.message().c_str());
  const MatMulParams params{.x = {x.data(), DType::kF32, kIn},
                            .weight = weight.get(),
                            .y = {y.data(), DType::kF32, kOut},
                            .rows = rows,
                            .step = state.range(1) != 0};
  for (auto _ : state) {
    status = lane->MatMul(params);
    if (!status.ok()) return state.SkipWithError(status.message().c_str());
  }
  const double bytes = static_cast<double>(kOut * kIn) * sizeof(float);
  state.counters["of_read"] = benchmark::Counter(
      bytes * static_cast<double>(state.iterations()) / ReadRate(), benchmark::Counter::kIsRate);
}

BENCHMARK(BM_MatMulStep)
    ->ArgNames({"rows", "step"})
    ->ArgsProduct({{1, 8, 64}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

BENCHMARK(BM_MatMul)
    ->ArgNames({"out", "in", "threads", "bf16"})
    ->ArgsProduct({{128, 1024, 4096}, {128, 1024}, {1, 2}, {0, 1}})
    ->ArgsProduct({{32, 2304, 9216}, {2304}, {1, 2}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
