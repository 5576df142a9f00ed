// Times the CUDA forward pass (K = V = 128, lower-bound gate, L2 norm, logit beta, fp32 final
// state). Each argument is one case, SEQUENCESxTOKENSxHEADS[:key=value,...] with keys portable,
// streams, slots, chain_only, prepare_only, gate (mean of f). Prints one line a case: ms (median),
// the share of the memory floor at the copy bandwidth measured first, and the workspace.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/forward.h"
#include "tests/gpu/device_memory.h"
#include "tests/testing/random.h"

namespace deltafill::test {
namespace {

struct BenchCase {
  int64_t sequences = 1, tokens = 0;
  int heads = 0;
  double raw_gate = 0.0;
  kernels::cuda::ForwardTuning tuning;
};

BenchCase ParseCase(const std::string& text) {
  BenchCase c;
  char options[200] = "";
  if (std::sscanf(text.c_str(), "%ldx%ldx%d:%199s", &c.sequences, &c.tokens, &c.heads, options) <
      3) {
    std::fprintf(stderr, "bad case %s\n", text.c_str());
    std::exit(2);
  }
  for (char* option = std::strtok(options, ","); option; option = std::strtok(nullptr, ",")) {
    double value = 0.0;
    char key[100] = "";
    std::sscanf(option, "%99[^=]=%lf", key, &value);
    const std::string name(key);
    if (name == "portable") c.tuning.force_portable = value != 0;
    if (name == "streams") c.tuning.streams = static_cast<int>(value);
    if (name == "slots") c.tuning.ring_slots = static_cast<int>(value);
    if (name == "chain_only") c.tuning.chain_only = value != 0;
    if (name == "prepare_only") c.tuning.prepare_only = value != 0;
    if (name == "gate") c.raw_gate = value;
  }
  return c;
}

// bf16 normal values: a random stretch, repeated over the whole buffer.
void FillRandom(void* to, size_t bytes, uint64_t seed, double mean) {
  Random random(seed);
  std::vector<uint16_t> values(std::min<size_t>(bytes / 2, (1 << 22) + 12345));
  for (uint16_t& x : values) x = Bf16Bits(static_cast<float>(mean + random.Normal()));
  size_t done = values.size() * 2;
  CheckCuda(cudaMemcpy(to, values.data(), done, cudaMemcpyHostToDevice));
  for (; done < bytes; done *= 2) {
    CheckCuda(cudaMemcpy(static_cast<char*>(to) + done, to, std::min(done, bytes - done),
                         cudaMemcpyDeviceToDevice));
  }
}

template <typename Call>
double MedianMs(int repeats, Call call) {
  cudaEvent_t start, end;
  CheckCuda(cudaEventCreate(&start));
  CheckCuda(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = -1; i < repeats; ++i) {
    CheckCuda(cudaEventRecord(start, nullptr));
    call();
    CheckCuda(cudaEventRecord(end, nullptr));
    CheckCuda(cudaEventSynchronize(end));
    float ms = 0.0f;
    CheckCuda(cudaEventElapsedTime(&ms, start, end));
    if (i >= 0) times.push_back(ms);
  }
  CheckCuda(cudaEventDestroy(start));
  CheckCuda(cudaEventDestroy(end));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double CopyBandwidth() {
  const size_t bytes = size_t{4} << 30;
  const DeviceMemory from(bytes), to(bytes);
  const double ms = MedianMs(5, [&] {
    CheckCuda(
        cudaMemcpyAsync(to.as<void>(), from.as<void>(), bytes, cudaMemcpyDeviceToDevice, nullptr));
  });
  return 2.0 * static_cast<double>(bytes) / (ms * 1e-3);
}

void RunCase(const std::string& name, const BenchCase& c, double bandwidth) {
  const int64_t rows = c.sequences * c.tokens, width = int64_t{c.heads} * 128;
  const size_t row_bytes = static_cast<size_t>(rows) * width * 2;
  const DeviceMemory q(row_bytes), k(row_bytes), v(row_bytes), f(row_bytes), o(row_bytes),
      beta(static_cast<size_t>(rows) * c.heads * 2);
  FillRandom(q.as<void>(), row_bytes, 1, 0.0);
  FillRandom(k.as<void>(), row_bytes, 2, 0.0);
  FillRandom(v.as<void>(), row_bytes, 3, 0.0);
  FillRandom(f.as<void>(), row_bytes, 4, c.raw_gate);
  FillRandom(beta.as<void>(), static_cast<size_t>(rows) * c.heads * 2, 5, 0.0);
  const DeviceMemory a_log(std::vector<float>(c.heads, 0.0f));
  const size_t state = width * 128;
  const DeviceMemory states(c.sequences * state * 4);
  std::vector<float*> finals;
  std::vector<int64_t> offsets = {0};
  for (int64_t i = 0; i < c.sequences; ++i) {
    finals.push_back(states.as<float>() + i * state);
    offsets.push_back(offsets.back() + c.tokens);
  }
  const auto bf16 = kernels::DType::kBF16;
  kernels::DeltaRuleForwardParams params;
  params.shape.heads = params.shape.value_heads = c.heads;
  params.shape.key_dim = params.shape.value_dim = 128;
  params.shape.gate = kernels::GateKind::kChannelLowerBound;
  params.in = {{q.as<void>(), bf16, width},      {k.as<void>(), bf16, width},
               {v.as<void>(), bf16, width},      {f.as<void>(), bf16, width},
               {beta.as<void>(), bf16, c.heads}, a_log.as<float>()};
  params.offsets = offsets;
  params.o = {o.as<void>(), bf16, width};
  params.final_states = finals.data();
  kernels::cuda::ForwardWorkspace workspace;
  auto call = [&] {
    const kernels::Status status =
        kernels::cuda::DeltaRuleForward(params, c.tuning, &workspace, nullptr);
    if (!status.ok()) throw std::runtime_error(status.message());
  };
  const double ms = MedianMs(rows > 500000 ? 5 : 20, call);
  const double floor_ms = static_cast<double>(rows) * c.heads * 1282.0 / bandwidth * 1e3;
  std::printf("%-44s %9.3f ms  floor %7.3f ms  %5.1f %% of floor  workspace %.0f MB\n",
              name.c_str(), ms, floor_ms, 100.0 * floor_ms / ms,
              static_cast<double>(workspace.bytes()) / 1e6);
  std::fflush(stdout);
}

}  // namespace
}  // namespace deltafill::test

int main(int argc, char** argv) {
  using namespace deltafill::test;
  try {
    const double bandwidth = CopyBandwidth();
    std::printf("copy %.2f TB/s\n", bandwidth * 1e-12);
    for (int i = 1; i < argc; ++i) RunCase(argv[i], ParseCase(argv[i]), bandwidth);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
