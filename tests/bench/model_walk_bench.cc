// A dense KDA model with random weights on the CUDA backend, through the operator interface alone:
// prefill of a long prompt in ranges, and decoding.
//
//   model_walk_bench prefill TOKENS RANGE [LAYERS HIDDEN HEADS]   tokens/s, MFU, time by operator
//   model_walk_bench decode STEPS BATCH [LAYERS HIDDEN HEADS]     steps/s, bytes/s
//   model_walk_bench products                                     rates of products by shape
//
// MFU counts matrix products only, against an 8,192-cubed product measured in the same run: just
// before, for a tenth of a second on a card that has rested, and for two seconds right after, as
// warm and as short of power as the prefill leaves it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/bench/observed_operators.h"
#include "tests/gpu/layer_walk.h"

namespace deltafill::test {
namespace {

using kernels::DType;

struct Opened {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<kernels::Operators> lane;
  size_t free_at_start = 0;

  Opened() {
    Must(kernels::NewCudaBackend({.compute_dtype = DType::kBF16}, &backend));
    Must(backend->NewOperators(1, &lane));
    free_at_start = FreeBytes();
  }
  size_t FreeBytes() {
    kernels::MemoryReport report;
    Must(backend->ReadMemory(&report));
    return report.free_bytes;
  }
};

// Seconds a product takes, of many issued one after the other for `all` seconds.
double TimeProduct(Opened* opened, const kernels::MatMulParams& params, double all) {
  const auto run = [&](int count) {
    for (int i = 0; i < count; ++i) Must(opened->lane->MatMul(params));
    Must(opened->lane->Synchronize());
  };
  run(5);
  const double once = std::max(1e-6, [&] {
    const double start = SecondsNow();
    run(5);
    return (SecondsNow() - start) / 5;
  }());
  const int count = std::clamp(static_cast<int>(all / once), 5, 4000);
  const double start = SecondsNow();
  run(count);
  return (SecondsNow() - start) / count;
}

// A product of a weight by random rows.
struct RandomProduct {
  BackendBuffer x, y;
  kernels::MatMulParams params;

  RandomProduct(Opened* opened, const kernels::Weight& weight, int64_t rows, bool decode)
      : x(opened->backend.get(), static_cast<size_t>(rows * weight.in_features()) * 2),
        y(opened->backend.get(), static_cast<size_t>(rows * weight.out_features()) * 2) {
    Random random(3);
    const std::vector<uint16_t> values =
        ToBf16Bits(Bf16Normal(&random, rows * weight.in_features()));
    Must(opened->lane->CopyFromHost(x.as<void>(), values.data(), x.bytes()));
    Must(opened->lane->Synchronize());
    params = {.x = {x.as<void>(), DType::kBF16, weight.in_features()},
              .weight = &weight,
              .y = {y.as<void>(), DType::kBF16, weight.out_features()},
              .rows = rows,
              .step = decode};
  }
};

std::unique_ptr<kernels::Weight> RandomWeight(Opened* opened, int64_t out, int64_t in) {
  Random random(4);
  const std::vector<uint16_t> bits = ToBf16Bits(Bf16Normal(&random, out * in, 0.02));
  std::unique_ptr<kernels::Weight> weight;
  Must(opened->backend->NewWeight(bits.data(), DType::kBF16, out, in, &weight));
  return weight;
}

constexpr int64_t kSquare = 8192;
double MatrixRate(Opened* opened, const RandomProduct& square, double seconds) {
  return 2.0 * kSquare * kSquare * kSquare / TimeProduct(opened, square.params, seconds);
}

void BenchProducts() {
  Opened opened;
  std::printf("| out, in | rows | us | TFLOP/s | weight TB/s |\n|---|---|---|---|---|\n");
  const int64_t shapes[][2] = {{6144, 2048},  {2048, 2048}, {272, 2048}, {2048, 128},
                               {11264, 2048}, {2048, 5632}, {8192, 8192}};
  for (const auto& [out, in] : shapes) {
    const auto weight = RandomWeight(&opened, out, in);
    const auto report = [&, out = out, in = in](int64_t rows, bool decode) {
      const RandomProduct product(&opened, *weight, rows, decode);
      const double seconds = TimeProduct(&opened, product.params, 0.1);
      std::printf("| %ld, %ld | %ld%s | %.1f | %.0f | %.2f |\n", out, in, rows,
                  decode ? " decode" : "", seconds * 1e6,
                  2e-12 * static_cast<double>(rows * out * in) / seconds,
                  2e-12 * static_cast<double>(out * in) / seconds);
      std::fflush(stdout);
    };
    for (int64_t rows : {1, 16, 64}) report(rows, true);
    for (int64_t rows : {1, 64, 256, 1024, 2048, 4096, 16384}) report(rows, false);
  }
  std::printf("numerics %s\n", opened.backend->numerics().c_str());
}

std::vector<uint32_t> RandomTokens(int64_t count, int64_t vocabulary) {
  Random random(9);
  std::vector<uint32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<uint32_t>(random.Integer(0, vocabulary - 1)));
  }
  return tokens;
}

void PrefillAll(WalkLane* lane, const std::vector<uint32_t>& tokens, int64_t range, float* state) {
  for (size_t first = 0; first < tokens.size(); first += static_cast<size_t>(range)) {
    const size_t count = std::min(static_cast<size_t>(range), tokens.size() - first);
    lane->Prefill(std::span(tokens).subspan(first, count), first == 0 ? nullptr : state, state);
  }
  Must(lane->operators().Synchronize());
}

void BenchPrefill(const WalkShape& shape, int64_t token_count, int64_t range) {
  Opened opened;
  const auto square_weight = RandomWeight(&opened, kSquare, kSquare);
  const RandomProduct square(&opened, *square_weight, kSquare, false);
  opened.free_at_start = opened.FreeBytes();
  const double rate_before = MatrixRate(&opened, square, 0.1);
  const double start_load = SecondsNow();
  const LayerWalk walk(opened.backend.get(), shape, 1);
  std::printf("weights: %.2f GB in %.1f s; matrix rate %.0f TFLOP/s\n", shape.WeightBytes() * 1e-9,
              SecondsNow() - start_load, rate_before * 1e-12);
  WalkLane lane(&walk, range);
  const BackendBuffer state(opened.backend.get(), static_cast<size_t>(shape.StateFloats()) * 4);
  const std::vector<uint32_t> tokens = RandomTokens(token_count, shape.vocabulary);
  const size_t warm = std::min(tokens.size(), static_cast<size_t>(2 * range));
  PrefillAll(&lane, {tokens.begin(), tokens.begin() + static_cast<int64_t>(warm)}, range,
             state.as<float>());
  const double start = SecondsNow();
  PrefillAll(&lane, tokens, range, state.as<float>());
  const double seconds = SecondsNow() - start;
  const double rate_after = MatrixRate(&opened, square, 2.0);
  const double rate = shape.ProductFlops() * static_cast<double>(token_count) / seconds;
  std::printf(
      "prefill of %ld tokens in ranges of %ld: %.3f s, %.0f tokens/s, MFU %.1f %% of the rate "
      "before, %.1f %% of %.0f TFLOP/s kept up right after\n",
      token_count, range, seconds, static_cast<double>(token_count) / seconds,
      100.0 * rate / rate_before, 100.0 * rate / rate_after, rate_after * 1e-12);
  std::printf("memory in use: %.2f GB, weights %.2f GB\n",
              static_cast<double>(opened.free_at_start - opened.FreeBytes()) * 1e-9,
              shape.WeightBytes() * 1e-9);

  OperatorTimes times;
  ObservedOperators timed(&lane.operators(), &times);
  lane.Redirect(&timed);
  const size_t sampled = std::min(tokens.size(), static_cast<size_t>(8 * range));
  const double timed_start = SecondsNow();
  PrefillAll(&lane, {tokens.begin(), tokens.begin() + static_cast<int64_t>(sampled)}, range,
             state.as<float>());
  const double timed_seconds = SecondsNow() - timed_start;
  std::printf("| operator (%zu tokens, each call waited for) | ms | %% |\n|---|---|---|\n",
              sampled);
  for (const auto& [name, spent] : times.seconds()) {
    std::printf("| %s | %.2f | %.1f |\n", name.c_str(), spent * 1e3, 100.0 * spent / timed_seconds);
  }
  std::printf("numerics %s\n", opened.backend->numerics().c_str());
}

void BenchDecode(const WalkShape& shape, int64_t steps, int64_t batch) {
  Opened opened;
  const LayerWalk walk(opened.backend.get(), shape, 1);
  WalkLane lane(&walk, batch);
  std::vector<BackendBuffer> states;
  std::vector<float*> pointers;
  for (int64_t i = 0; i < batch; ++i) {
    states.emplace_back(opened.backend.get(), static_cast<size_t>(shape.StateFloats()) * 4);
    Must(opened.lane->FillZero(states.back().as<void>(), states.back().bytes()));
    pointers.push_back(states.back().as<float>());
  }
  Must(opened.lane->Synchronize());
  const BackendBuffer logits(opened.backend.get(),
                             static_cast<size_t>(batch * shape.vocabulary) * 4);
  const std::vector<uint32_t> tokens = RandomTokens(batch, shape.vocabulary);
  const auto issue = [&] {
    lane.Decode(tokens, pointers);
    lane.Logits(batch, true, logits.as<float>());
  };
  issue();
  Must(lane.operators().Synchronize());
  std::unique_ptr<kernels::Recording> recording;
  Must(lane.operators().BeginRecording());
  issue();
  Must(lane.operators().EndRecording(&recording));
  const double bytes = shape.WeightBytes() +
                       8.0 * static_cast<double>(shape.StateFloats()) * static_cast<double>(batch);
  for (const bool replays : {false, true}) {
    const auto run = [&](int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        if (replays) {
          Must(lane.operators().Replay(*recording, tokens));
        } else {
          issue();
        }
        Must(lane.operators().Synchronize());
      }
    };
    run(5);
    const double start = SecondsNow();
    run(steps);
    const double step = (SecondsNow() - start) / static_cast<double>(steps);
    std::printf(
        "decode, batch %ld%s: %.3f ms a step, %.0f tokens/s, %.2f TB/s of weights and "
        "states\n",
        batch, replays ? ", replayed" : "", step * 1e3, static_cast<double>(batch) / step,
        bytes / step * 1e-12);
  }
}

int Main(int argc, char** argv) {
  WalkShape shape = {
      .layers = 24, .heads = 16, .hidden = 2048, .intermediate = 5632, .vocabulary = 32000};
  if (argc > 4) shape.layers = std::atoi(argv[4]);
  if (argc > 5) shape.hidden = std::atol(argv[5]);
  if (argc > 6) shape.heads = std::atoi(argv[6]);
  if (argc == 2 && std::strcmp(argv[1], "products") == 0) {
    BenchProducts();
  } else if (argc >= 4 && std::strcmp(argv[1], "prefill") == 0) {
    BenchPrefill(shape, std::atol(argv[2]), std::atol(argv[3]));
  } else if (argc >= 4 && std::strcmp(argv[1], "decode") == 0) {
    BenchDecode(shape, std::atol(argv[2]), std::atol(argv[3]));
  } else {
    std::fprintf(stderr,
                 "usage: model_walk_bench prefill TOKENS RANGE | decode STEPS BATCH | "
                 "products\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace deltafill::test

int main(int argc, char** argv) {
  try {
    return deltafill::test::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "model_walk_bench: %s\n", error.what());
    return 1;
  }
}
