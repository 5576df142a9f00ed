// Chunkwise delta rule on one CPU thread as a fraction of the sgemm rate measured in the same run.
//
// FLOP counted, a token and value head, with blocks of C = 64: only what a chunkwise implementation
// needs, triangles as halves, no gates, norms or exponentials:
//   6 K V   (K 2^G) S, (Q 2^G) S and K^T E
//   2 C K   the lower triangles of A and P
//   2 C V   solving with I + A, and P E
// The summary: 4 K (K + V) + C K + C (K + V), no outputs.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cpu/delta_rule.h"
#include "kernels/cpu/thread_team.h"
#include "tests/bench/cpu_rate.h"
#include "tests/testing/random.h"

// Of the OpenMP runtime that oneDNN was built with.
extern "C" void omp_set_num_threads(int threads);

namespace deltafill::test {
namespace {

using kernels::DeltaRuleShape;
using kernels::DType;
using kernels::GateKind;
using kernels::WriteRule;

constexpr int64_t kTokens = 1024;
constexpr int kHeads = 16;

struct BenchInputs {
  BenchInputs(const DeltaRuleShape& shape, int64_t rows) {
    Random random(2);
    const int64_t key_width = static_cast<int64_t>(shape.heads) * shape.key_dim;
    const int64_t value_width = static_cast<int64_t>(shape.value_heads) * shape.value_dim;
    q = random.NormalVector(rows * key_width);
    k = random.NormalVector(rows * key_width);
    v = random.NormalVector(rows * value_width);
    f = random.NormalVector(rows * shape.value_heads * shape.key_dim);
    beta = random.NormalVector(rows * shape.value_heads);
    a_log = random.UniformVector(shape.value_heads, -1.0, 1.0);
    o.resize(v.size());
    in = {{q.data(), DType::kF32, key_width},
          {k.data(), DType::kF32, key_width},
          {v.data(), DType::kF32, value_width},
          {f.data(), DType::kF32, static_cast<int64_t>(shape.value_heads) * shape.key_dim},
          {beta.data(), DType::kF32, shape.value_heads},
          a_log.data(),
          nullptr};
  }
  std::vector<float> q, k, v, f, beta, a_log, o;
  kernels::DeltaRuleInputs in;
};

struct Case {
  const char* name;
  GateKind gate;
  WriteRule write;
  int key_dim;
  int value_dim;
};

void PrintRate(const char* name, int key_dim, int value_dim, double flop, double seconds,
               int64_t token_heads, double sgemm) {
  const double rate = flop * static_cast<double>(token_heads) / seconds * 1e-9;
  std::printf("%-34s %4d %4d %8.0f %10.1f %9.1f %7.0f %%\n", name, key_dim, value_dim, flop,
              token_heads / seconds * 1e-3, rate, 100.0 * rate / sgemm);
}

void RunForward(const Case& c, kernels::cpu::ThreadTeam& team, double sgemm) {
  DeltaRuleShape shape;
  shape.heads = shape.value_heads = kHeads;
  shape.key_dim = c.key_dim;
  shape.value_dim = c.value_dim;
  shape.gate = c.gate;
  shape.write = c.write;
  BenchInputs inputs(shape, kTokens);
  const int64_t offsets[] = {0, kTokens};
  kernels::DeltaRuleForwardParams params;
  params.shape = shape;
  params.in = inputs.in;
  params.offsets = offsets;
  const int64_t value_width = static_cast<int64_t>(shape.value_heads) * shape.value_dim;
  params.o = {inputs.o.data(), DType::kF32, value_width};
  const double seconds =
      ShortestSeconds([&] { Check(kernels::cpu::DeltaRuleForward(params, team)); });
  const double kv = static_cast<double>(c.key_dim) * c.value_dim;
  const bool delta = c.write == WriteRule::kDelta;
  const double flop = delta ? 6 * kv + 128.0 * (c.key_dim + c.value_dim)
                            : 4 * kv + 64.0 * (c.key_dim + c.value_dim);
  PrintRate(c.name, c.key_dim, c.value_dim, flop, seconds, kTokens * shape.value_heads, sgemm);
}

void RunSummary(kernels::cpu::ThreadTeam& team, double sgemm) {
  DeltaRuleShape shape;
  shape.heads = shape.value_heads = kHeads;
  shape.key_dim = shape.value_dim = 128;
  BenchInputs inputs(shape, kTokens);
  std::vector<float> m(kHeads * 128 * 128);
  std::vector<float> b(kHeads * 128 * 128);
  kernels::DeltaRuleSummaryParams params;
  params.shape = shape;
  params.in = inputs.in;
  params.rows = kTokens;
  params.m = m.data();
  params.b = b.data();
  const double seconds =
      ShortestSeconds([&] { Check(kernels::cpu::DeltaRuleSummary(params, team)); });
  const double flop = 4.0 * 128 * 256 + 64.0 * 128 + 64.0 * 256;
  PrintRate("summary, channel softplus", 128, 128, flop, seconds, kTokens * kHeads, sgemm);
}

void RunStep(kernels::cpu::ThreadTeam& team) {
  constexpr int64_t kBatch = 8;
  DeltaRuleShape shape;
  shape.heads = shape.value_heads = 16;
  shape.key_dim = shape.value_dim = 128;
  BenchInputs inputs(shape, kBatch);
  std::vector<std::vector<float>> states(kBatch, std::vector<float>(16 * 128 * 128));
  std::vector<float*> pointers;
  for (auto& state : states) pointers.push_back(state.data());
  kernels::DeltaRuleStepParams params;
  params.shape = shape;
  params.in = inputs.in;
  params.batch = kBatch;
  params.states = pointers.data();
  params.o = {inputs.o.data(), DType::kF32, 16 * 128};
  const double seconds = ShortestSeconds([&] { Check(kernels::cpu::DeltaRuleStep(params, team)); });
  std::printf("step, 128 x 128: %.2f us a head, %.1f GB/s of state read and written\n",
              seconds / (kBatch * 16) * 1e6, kBatch * 16 * 2 * 65536.0 / seconds * 1e-9);
}

// Runs the cases whose name contains `filter`.
int Main(const std::string& filter) {
  kernels::cpu::ThreadTeam team(1);
  const double panels = SgemmRate(64, 1024, 1024);
  const double large = SgemmRate(1024, 1024, 1024);
  const double sgemm = std::max(panels, large);
  std::printf("sgemm, one thread, GFLOP/s: 64 x 1024 x 1024 %.1f, 1024^3 %.1f\n\n", panels, large);
  std::printf("%-34s %4s %4s %8s %10s %9s %9s\n", "operator", "K", "V", "FLOP", "ktoken-h/s",
              "GFLOP/s", "of sgemm");
  constexpr Case kCases[] = {
      {"KDA, channel softplus", GateKind::kChannelSoftplus, WriteRule::kDelta, 128, 128},
      {"KDA, lower bound", GateKind::kChannelLowerBound, WriteRule::kDelta, 128, 128},
      {"KDA, channel softplus", GateKind::kChannelSoftplus, WriteRule::kDelta, 64, 64},
      {"KDA, channel softplus", GateKind::kChannelSoftplus, WriteRule::kDelta, 32, 32},
      {"Gated DeltaNet", GateKind::kScalarSoftplus, WriteRule::kDelta, 128, 128},
      {"DeltaNet", GateKind::kNone, WriteRule::kDelta, 128, 128},
      {"linear attention", GateKind::kNone, WriteRule::kLinear, 128, 128},
  };
  for (const Case& c : kCases) {
    if (std::string(c.name).find(filter) != std::string::npos) RunForward(c, team, sgemm);
  }
  if (filter.empty()) {
    RunSummary(team, sgemm);
    RunStep(team);
  }
  return 0;
}

}  // namespace
}  // namespace deltafill::test

int main(int argc, char** argv) {
  omp_set_num_threads(1);
  return deltafill::test::Main(argc > 1 ? argv[1] : "");
}
