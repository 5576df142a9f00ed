// A dense KDA model with random weights on the CUDA backend, through the operator interface alone:
// prefill of a long prompt in ranges, and decoding.
//
//   model_walk_bench prefill TOKENS RANGE [LAYERS HIDDEN HEADS]   tokens/s, MFU, time by operator
//   model_walk_bench decode STEPS BATCH [LAYERS HIDDEN HEADS]     steps/s, bytes/s
//   model_walk_bench decode-operators STEPS BATCH [...]           ... and time by operator
//   model_walk_bench products                                     rates of products by shape
//   model_walk_bench steps ROWS...                                decoding's products by shape
//
// MFU counts matrix products only, against an 8,192-cubed product measured in the same run: just
// before, for a tenth of a second on a card that has rested, and for two seconds right after, as
// warm and as short of power as the prefill leaves it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

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

// What `issue` issues, recorded; it runs once before.
template <typename Issue>
std::unique_ptr<kernels::Recording> Record(kernels::Operators* lane, const Issue& issue) {
  issue();
  Must(lane->Synchronize());
  std::unique_ptr<kernels::Recording> recording;
  Must(lane->BeginRecording());
  issue();
  Must(lane->EndRecording(&recording));
  return recording;
}

// Products of decoding, recorded: so many weights of a shape one after the other that none is still
// in the card's cache when its turn comes again.
void BenchStepShape(Opened* opened, int64_t out, int64_t in,
                    const std::vector<int64_t>& row_counts) {
  constexpr int64_t kBytes = int64_t{400} << 20;
  const int64_t count = std::clamp<int64_t>(kBytes / (out * in * 2), 3, 100);
  Random random(4);
  const std::vector<uint16_t> bits = ToBf16Bits(Bf16Normal(&random, out * in, 0.02));
  std::vector<std::unique_ptr<kernels::Weight>> weights(static_cast<size_t>(count));
  for (auto& weight : weights) {
    Must(opened->backend->NewWeight(bits.data(), DType::kBF16, out, in, &weight));
  }
  for (const int64_t rows : row_counts) {
    const std::vector<uint16_t> values = ToBf16Bits(Bf16Normal(&random, rows * in));
    const BackendBuffer x(opened->backend.get(), values.size() * 2);
    const BackendBuffer y(opened->backend.get(), static_cast<size_t>(rows * out) * 2);
    Must(opened->lane->CopyFromHost(x.as<void>(), values.data(), x.bytes()));
    const auto issue = [&] {
      for (const auto& weight : weights) {
        Must(opened->lane->MatMul({.x = {x.as<void>(), DType::kBF16, in},
                                   .weight = weight.get(),
                                   .y = {y.as<void>(), DType::kBF16, out},
                                   .rows = rows,
                                   .step = true}));
      }
    };
    const auto recording = Record(opened->lane.get(), issue);
    const auto run = [&](int replays) {
      for (int i = 0; i < replays; ++i) Must(opened->lane->Replay(*recording, {}));
      Must(opened->lane->Synchronize());
    };
    run(5);
    constexpr int kReplays = 50;
    const double start = SecondsNow();
    run(kReplays);
    const double seconds = (SecondsNow() - start) / (kReplays * static_cast<double>(count));
    std::printf("| %ld, %ld | %ld | %.2f | %.2f |\n", out, in, rows, seconds * 1e6,
                2e-12 * static_cast<double>(out * in) / seconds);
    std::fflush(stdout);
  }
}

void BenchSteps(const std::vector<int64_t>& row_counts) {
  Opened opened;
  std::printf("| out, in | rows | us | weight TB/s |\n|---|---|---|---|\n");
  const int64_t shapes[][2] = {{6416, 2048},  {2048, 2048}, {2048, 128},
                               {11264, 2048}, {2048, 5632}, {32000, 2048}};
  for (const auto& [out, in] : shapes) BenchStepShape(&opened, out, in, row_counts);
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

// Leaves out the calls of one name: what a run gets faster by is what they cost in it.
class OmittedCalls final : public OperatorObserver {
 public:
  explicit OmittedCalls(std::string omitted) : omitted_(std::move(omitted)) {}
  const std::set<std::string>& names() const { return names_; }

  kernels::Status Before(kernels::Operators&, const std::string&) override { return {}; }
  kernels::Status After(kernels::Operators&, const std::string&) override { return {}; }
  bool Omits(const std::string& name) override {
    names_.insert(name);
    return name == omitted_;
  }

 private:
  const std::string omitted_;
  std::set<std::string> names_;
};

// A lane that decodes one token of each of `batch` sequences, from empty states.
class DecodeBench {
 public:
  DecodeBench(Opened* opened, const WalkShape& shape, int64_t batch)
      : walk_(opened->backend.get(), shape, 1),
        lane_(&walk_, batch),
        logits_(opened->backend.get(), static_cast<size_t>(batch * shape.vocabulary) * 4),
        tokens_(RandomTokens(batch, shape.vocabulary)) {
    for (int64_t i = 0; i < batch; ++i) {
      states_.emplace_back(opened->backend.get(), static_cast<size_t>(shape.StateFloats()) * 4);
      Must(opened->lane->FillZero(states_.back().as<void>(), states_.back().bytes()));
      pointers_.push_back(states_.back().as<float>());
    }
    Must(opened->lane->Synchronize());
  }

  // Seconds a step takes; names of the calls beside the omitted one, if asked for.
  double Issued(int64_t steps) {
    return Time(steps, [&] { Issue(); });
  }
  double Replayed(int64_t steps, const std::string& omitted = "",
                  std::set<std::string>* names = nullptr) {
    OmittedCalls calls(omitted);
    ObservedOperators observed(&lane_.operators(), &calls);
    lane_.Redirect(&observed);
    const auto recording = Record(&lane_.operators(), [&] { Issue(); });
    lane_.Redirect(nullptr);
    if (names != nullptr) *names = calls.names();
    return Time(steps, [&] { Must(lane_.operators().Replay(*recording, tokens_)); });
  }

 private:
  void Issue() {
    lane_.Decode(tokens_, pointers_);
    lane_.Logits(static_cast<int64_t>(tokens_.size()), true, logits_.as<float>());
  }
  template <typename Step>
  double Time(int64_t steps, Step step) {
    const auto run = [&](int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        step();
        Must(lane_.operators().Synchronize());
      }
    };
    run(5);
    const double start = SecondsNow();
    run(steps);
    return (SecondsNow() - start) / static_cast<double>(steps);
  }

  const LayerWalk walk_;
  WalkLane lane_;
  const BackendBuffer logits_;
  const std::vector<uint32_t> tokens_;
  std::vector<BackendBuffer> states_;
  std::vector<float*> pointers_;
};

void BenchDecode(const WalkShape& shape, int64_t steps, int64_t batch, bool by_operator) {
  Opened opened;
  DecodeBench bench(&opened, shape, batch);
  const double bytes = shape.WeightBytes() +
                       8.0 * static_cast<double>(shape.StateFloats()) * static_cast<double>(batch);
  const auto report = [&](const char* how, double step) {
    std::printf(
        "decode, batch %ld%s: %.3f ms a step, %.0f tokens/s, %.2f TB/s of weights and "
        "states\n",
        batch, how, step * 1e3, static_cast<double>(batch) / step, bytes / step * 1e-12);
  };
  report("", bench.Issued(steps));
  std::set<std::string> names;
  const double whole = bench.Replayed(steps, "", &names);
  report(", replayed", whole);
  if (!by_operator) return;
  std::printf("| operator, batch %ld | us a step more with it |\n|---|---|\n", batch);
  for (const std::string& name : names) {
    if (name == "embedding") continue;  // a replay's tokens need it
    std::printf("| %s | %.1f |\n", name.c_str(), (whole - bench.Replayed(steps, name)) * 1e6);
  }
}

int Main(int argc, char** argv) {
  WalkShape shape = {
      .layers = 24, .heads = 16, .hidden = 2048, .intermediate = 5632, .vocabulary = 32000};
  const bool walks = argc > 1 && std::strcmp(argv[1], "steps") != 0;
  if (walks && argc > 4) shape.layers = std::atoi(argv[4]);
  if (walks && argc > 5) shape.hidden = std::atol(argv[5]);
  if (walks && argc > 6) shape.heads = std::atoi(argv[6]);
  if (argc == 2 && std::strcmp(argv[1], "products") == 0) {
    BenchProducts();
  } else if (argc >= 3 && std::strcmp(argv[1], "steps") == 0) {
    std::vector<int64_t> rows;
    for (int i = 2; i < argc; ++i) rows.push_back(std::atol(argv[i]));
    BenchSteps(rows);
  } else if (argc >= 4 && std::strcmp(argv[1], "prefill") == 0) {
    BenchPrefill(shape, std::atol(argv[2]), std::atol(argv[3]));
  } else if (argc >= 4 && std::strcmp(argv[1], "decode") == 0) {
    BenchDecode(shape, std::atol(argv[2]), std::atol(argv[3]), false);
  } else if (argc >= 4 && std::strcmp(argv[1], "decode-operators") == 0) {
    BenchDecode(shape, std::atol(argv[2]), std::atol(argv[3]), true);
  } else {
    std::fprintf(
        stderr,
        "usage: model_walk_bench prefill TOKENS RANGE | decode|decode-operators STEPS BATCH | "
        "products | steps ROWS...\n");
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
