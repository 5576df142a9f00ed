// Times the recurrent step, the short convolution and the norms against the copy bandwidth
// measured in the same run.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "kernels/cuda/recurrent.h"
#include "kernels/cuda/row_operators.h"
#include "tests/gpu/device_memory.h"
#include "tests/testing/random.h"

namespace deltafill::test {
namespace {

using kernels::DType;
using kernels::Status;

DeviceMemory RandomRows(size_t elements, uint64_t seed) {
  Random random(seed);
  std::vector<uint16_t> stretch(std::min<size_t>(elements, (1 << 20) + 77));
  for (uint16_t& x : stretch) x = Bf16Bits(static_cast<float>(random.Normal()));
  DeviceMemory memory(elements * 2);
  size_t done = stretch.size() * 2;
  CheckCuda(cudaMemcpy(memory.as<void>(), stretch.data(), done, cudaMemcpyHostToDevice));
  for (; done < elements * 2; done *= 2) {
    CheckCuda(cudaMemcpy(memory.as<char>() + done, memory.as<void>(),
                         std::min(done, elements * 2 - done), cudaMemcpyDeviceToDevice));
  }
  return memory;
}

template <typename Call>
double MedianMs(Call call) {
  cudaEvent_t start, end;
  CheckCuda(cudaEventCreate(&start));
  CheckCuda(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = -3; i < 20; ++i) {
    CheckCuda(cudaEventRecord(start, nullptr));
    call();
    CheckCuda(cudaEventRecord(end, nullptr));
    CheckCuda(cudaEventSynchronize(end));
    float ms = 0.0f;
    CheckCuda(cudaEventElapsedTime(&ms, start, end));
    if (i >= 0) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void Must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

void Report(const char* name, double ms, double bytes, double bandwidth) {
  std::printf("| %s | %.4f | %.2f | %.0f |\n", name, ms, bytes / ms * 1e-9,
              100.0 * bytes / (ms * 1e-3) / bandwidth);
}

void BenchStep(double bandwidth) {
  const int64_t batch = 64, heads = 32, width = heads * 128, state = width * 128;
  const DeviceMemory rows = RandomRows(batch * width * 4 + batch * heads, 1);
  const DeviceMemory o(batch * width * 2), a_log(std::vector<float>(heads, 0.0f));
  // Two sets of states, so that a run does not find its own in the cache.
  const DeviceMemory states(2 * batch * state * 4);
  CheckCuda(cudaMemset(states.as<void>(), 0, 2 * batch * state * 4));
  std::vector<float*> pointers[2];
  for (int64_t i = 0; i < 2 * batch; ++i)
    pointers[i / batch].push_back(states.as<float>() + i * state);
  auto at = [&](int64_t i) { return rows.as<uint16_t>() + i * batch * width; };
  kernels::DeltaRuleStepParams params;
  params.shape.heads = params.shape.value_heads = heads;
  params.shape.key_dim = params.shape.value_dim = 128;
  params.shape.gate = kernels::GateKind::kChannelLowerBound;
  params.in = {{at(0), DType::kBF16, width}, {at(1), DType::kBF16, width},
               {at(2), DType::kBF16, width}, {at(3), DType::kBF16, width},
               {at(4), DType::kBF16, heads}, a_log.as<float>()};
  params.batch = batch;
  params.o = {o.as<void>(), DType::kBF16, width};
  kernels::cuda::DeviceBuffer buffer;
  int turn = 0;
  const double ms = MedianMs([&] {
    params.states = pointers[turn ^= 1].data();
    Must(kernels::cuda::DeltaRuleStep(params, &buffer, nullptr));
  });
  Report("recurrent step, batch 64, H 32", ms, 2.0 * batch * state * 4 + 5.0 * batch * width * 2,
         bandwidth);
}

void BenchConv(double bandwidth) {
  const int64_t rows = 65536, channels = 12288;
  const DeviceMemory x = RandomRows(rows * channels, 2), y(rows * channels * 2);
  const DeviceMemory weight(std::vector<float>(channels * 4, 0.25f)), tail(channels * 12);
  const std::vector<int64_t> offsets = {0, rows};
  float* tails[1] = {tail.as<float>()};
  kernels::ShortConvParams params;
  params.x = {x.as<void>(), DType::kBF16, channels};
  params.weight = weight.as<float>();
  params.offsets = offsets;
  params.tails_out = tails;
  params.y = {y.as<void>(), DType::kBF16, channels};
  params.channels = channels;
  kernels::cuda::DeviceBuffer buffer;
  const double ms = MedianMs([&] { Must(kernels::cuda::ShortConv(params, &buffer, nullptr)); });
  Report("short convolution, 65,536 x 12,288", ms, 4.0 * rows * channels, bandwidth);
}

void BenchNorm(const char* name, int64_t rows, int64_t groups, int64_t width, bool gated,
               double bandwidth) {
  const int64_t total = groups * width;
  const DeviceMemory x = RandomRows(rows * total, 3), gate = RandomRows(rows * total, 4),
                     y(rows * total * 2), weight(std::vector<float>(width, 1.0f));
  kernels::RmsNormParams params;
  params.x = {x.as<void>(), DType::kBF16, total};
  if (gated) params.gate = {gate.as<void>(), DType::kBF16, total};
  params.y = {y.as<void>(), DType::kBF16, total};
  params.weight = weight.as<float>();
  params.rows = rows;
  params.groups = groups;
  params.width = width;
  const double ms = MedianMs([&] { Must(kernels::cuda::RmsNorm(params, nullptr)); });
  Report(name, ms, (gated ? 6.0 : 4.0) * rows * total, bandwidth);
}

double CopyBandwidth() {
  const size_t bytes = size_t{4} << 30;
  const DeviceMemory from(bytes), to(bytes);
  const double ms = MedianMs([&] {
    CheckCuda(
        cudaMemcpyAsync(to.as<void>(), from.as<void>(), bytes, cudaMemcpyDeviceToDevice, nullptr));
  });
  return 2.0 * static_cast<double>(bytes) / (ms * 1e-3);
}

}  // namespace
}  // namespace deltafill::test

int main() {
  using namespace deltafill::test;
  try {
    const double bandwidth = CopyBandwidth();
    std::printf("| operator (copy %.2f TB/s) | ms | TB/s | %% of copy |\n|---|---|---|---|\n",
                bandwidth * 1e-12);
    BenchStep(bandwidth);
    BenchConv(bandwidth);
    BenchNorm("gated RMSNorm, 65,536 x 32 x 128", 65536, 32, 128, true, bandwidth);
    BenchNorm("RMSNorm, 262,144 x 2,048", 262144, 1, 2048, false, bandwidth);
    BenchNorm("RMSNorm, 262,144 x 2,304", 262144, 1, 2304, false, bandwidth);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
