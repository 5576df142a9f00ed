// Prefill of a whole model with random weights by one lane, as a worker's lane walks it but without
// service, exchange and store: tokens/s, MFU, and time by kind of layer of real, undisturbed runs.
//
//   model_prefill_bench MODEL_DIRECTORY DEVICE RANGE TOKENS...      DEVICE: cpu, cuda or cuda:N
//
// Each prompt runs once in ranges of RANGE tokens; its last range is then run again with every call
// waited for, for the table by operator. Work is counted as MatrixWork says, against the rate of a
// square product (8,192 on a card, 1,024 on a CPU) measured before the weights are made and after
// all prompts.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/bench/model_sections.h"
#include "tests/bench/observed_backend.h"
#include "tests/testing/random.h"
#include "worker/model/lane.h"
#include "worker/model/model.h"
#include "worker/model/status_steps.h"

namespace deltafill::test {
namespace {

using worker::DeviceBuffer;
using worker::StateEntry;

constexpr uint64_t kSeed = 7;

// The states between the ranges of one prompt, on the device.
class ChainPort final : public worker::BoundaryPort {
 public:
  ChainPort(const worker::StateLayout& layout, const worker::LatentCache& latents, const void* in,
            void* out, int64_t first_token)
      : layout_(layout), latents_(latents), in_(in), out_(out), first_token_(first_token) {}

  absl::StatusOr<const void*> Await(uint32_t layer, PartKind kind) override {
    if (in_ == nullptr) return nullptr;
    return static_cast<const std::byte*>(in_) + layout_.Find(layer, kind)->offset;
  }
  void* Outgoing(uint32_t layer, PartKind kind) override {
    return static_cast<std::byte*>(out_) + layout_.Find(layer, kind)->offset;
  }
  absl::Status HandOn(uint32_t, PartKind) override { return absl::OkStatus(); }
  void* Capture(int, uint32_t, PartKind) override { return nullptr; }
  absl::StatusOr<kernels::LatentSequence> Latents(uint32_t layer) override {
    return kernels::LatentSequence{latents_.Pages(layer), first_token_};
  }
  absl::Status ShareLatents(uint32_t) override { return absl::OkStatus(); }
  absl::Status TaskDone(uint32_t) override { return absl::OkStatus(); }

 private:
  const worker::StateLayout& layout_;
  const worker::LatentCache& latents_;
  const void* const in_;
  void* const out_;
  const int64_t first_token_;
};

class PrefillBench {
 public:
  static absl::StatusOr<std::unique_ptr<PrefillBench>> Open(const std::string& device,
                                                            int64_t range_tokens);

  absl::StatusOr<double> MatrixRate();
  absl::Status Run(int64_t token_count, double matrix_rate);
  absl::Status PrintMemory();
  const std::string& numerics() const { return backend_->numerics(); }
  absl::Status Load(const std::string& directory);

 private:
  PrefillBench() = default;

  // Ranges [begin, end) of a prompt that starts at token 0; logits after the last.
  absl::Status Prefill(const std::vector<uint32_t>& tokens, int64_t begin, int64_t end);
  void PrintSections(int64_t token_count, double seconds, const SectionTimes& sections,
                     double matrix_rate) const;

  bool on_device_ = false;
  int64_t range_tokens_ = 0;
  std::shared_ptr<ObservedBackend> backend_;
  std::unique_ptr<worker::Model> model_;
  std::shared_ptr<worker::Lane> lane_;
  DeviceBuffer states_[2];
  std::unique_ptr<worker::LatentCache> latents_;
};

absl::StatusOr<std::unique_ptr<PrefillBench>> PrefillBench::Open(const std::string& device,
                                                                 int64_t range_tokens) {
  std::unique_ptr<PrefillBench> bench(new PrefillBench());
  bench->on_device_ = device != "cpu";
  bench->range_tokens_ = range_tokens;
  std::unique_ptr<kernels::Backend> backend;
  if (bench->on_device_) {
    kernels::BackendOptions options{.compute_dtype = kernels::DType::kBF16};
    if (device.rfind("cuda:", 0) == 0) options.device = std::atoi(device.c_str() + 5);
    DELTAFILL_TRY(kernels::NewCudaBackend(options, &backend));
  } else {
    DELTAFILL_TRY(kernels::NewCpuBackend({}, &backend));
  }
  bench->backend_ = std::make_shared<ObservedBackend>(std::move(backend));
  return bench;
}

absl::Status PrefillBench::Load(const std::string& directory) {
  const double start = SecondsNow();
  DELTAFILL_TRY_ASSIGN(model, worker::LoadModel(directory, backend_, {.random_seed = kSeed}));
  model_ = std::move(model);
  std::printf("%s: %zu layers, random weights in %.1f s\n", directory.c_str(),
              model_->config().layers.size(), SecondsNow() - start);
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  DELTAFILL_TRY_ASSIGN(lane, model_->NewLane(threads, range_tokens_));
  lane_ = std::move(lane);
  for (DeviceBuffer& state : states_) {
    DELTAFILL_TRY_ASSIGN(made, DeviceBuffer::Allocate(*backend_, model_->state_layout().bytes));
    state = std::move(made);
  }
  latents_ = std::make_unique<worker::LatentCache>(backend_.get(), &model_->state_layout().latents);
  return absl::OkStatus();
}

// FLOP/s of one square product after the other, for about half a second.
absl::StatusOr<double> PrefillBench::MatrixRate() {
  const int64_t size = on_device_ ? 8192 : 1024;
  std::unique_ptr<kernels::Operators> lane;
  DELTAFILL_TRY(
      backend_->NewOperators(static_cast<int>(std::thread::hardware_concurrency()), &lane));
  Random random(3);
  const std::vector<float> values = random.UniformVector(size * size, -0.02, 0.02);
  std::unique_ptr<kernels::Weight> weight;
  DELTAFILL_TRY(backend_->NewWeight(values.data(), kernels::DType::kF32, size, size, &weight));
  // Activations without a conversion of their own: what the product made of the values.
  const kernels::DType dtype = backend_->activation_dtype();
  const size_t bytes = values.size() * kernels::SizeOf(dtype);
  DELTAFILL_TRY_ASSIGN(x, DeviceBuffer::Allocate(*backend_, bytes));
  DELTAFILL_TRY_ASSIGN(y, DeviceBuffer::Allocate(*backend_, bytes));
  std::vector<uint32_t> rows(static_cast<size_t>(size));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint32_t>(i);
  DELTAFILL_TRY(
      lane->Embedding({.table = weight.get(), .tokens = rows, .y = {x.get(), dtype, size}}));
  const auto run = [&](int count) -> absl::StatusOr<double> {
    const double start = SecondsNow();
    for (int i = 0; i < count; ++i) {
      DELTAFILL_TRY(lane->MatMul({.x = {x.get(), dtype, size},
                                  .weight = weight.get(),
                                  .y = {y.get(), dtype, size},
                                  .rows = size}));
    }
    DELTAFILL_TRY(lane->Synchronize());
    return (SecondsNow() - start) / count;
  };
  DELTAFILL_TRY(run(3).status());
  DELTAFILL_TRY_ASSIGN(once, run(3));
  DELTAFILL_TRY_ASSIGN(seconds, run(std::clamp(static_cast<int>(0.5 / once), 3, 1000)));
  return 2.0 * static_cast<double>(size * size) * static_cast<double>(size) / seconds;
}

absl::Status PrefillBench::Prefill(const std::vector<uint32_t>& tokens, int64_t begin,
                                   int64_t end) {
  const int64_t count = static_cast<int64_t>(tokens.size());
  for (int64_t range = begin; range < end; ++range) {
    const int64_t first = range * range_tokens_;
    const void* const in = range == 0 ? nullptr : states_[(range + 1) % 2].get();
    ChainPort port(model_->state_layout(), *latents_, in, states_[range % 2].get(), first);
    const worker::RangeWork work{
        std::span(tokens).subspan(static_cast<size_t>(first),
                                  static_cast<size_t>(std::min(range_tokens_, count - first))),
        {},
        &port};
    DELTAFILL_TRY(model_->Prefill(*lane_, {&work, 1}));
    // As a worker's lane does after each range.
    DELTAFILL_TRY(lane_->operators().Synchronize());
  }
  std::vector<float> logits(static_cast<size_t>(model_->config().vocab_size));
  DELTAFILL_TRY(model_->LastLogits(*lane_, logits));
  for (float logit : logits) {
    if (!std::isfinite(logit)) return absl::InternalError("a logit is not finite");
  }
  return absl::OkStatus();
}

void PrefillBench::PrintSections(int64_t token_count, double seconds, const SectionTimes& sections,
                                 double matrix_rate) const {
  const auto work = MatrixWork(model_->config(), token_count);
  double total = 0;
  for (double part : work) total += part;
  std::printf("\n%ld tokens in ranges of %ld: %.3f s, %.0f tokens/s, %.4g PFLOP, MFU %.1f %%\n\n",
              token_count, range_tokens_, seconds, static_cast<double>(token_count) / seconds,
              total * 1e-15, 100 * total / seconds / matrix_rate);
  std::printf("| layers | s | %% of the time | PFLOP | TFLOP/s | of the matrix rate |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < kSectionCount; ++i) {
    const double spent = sections.seconds()[i];
    if (work[i] == 0 || spent <= 0) continue;
    std::printf("| %s | %.3f | %.1f | %.4g | %.1f | %.1f %% |\n",
                SectionName(static_cast<Section>(i)), spent, 100 * spent / seconds, work[i] * 1e-15,
                work[i] / spent * 1e-12, 100 * work[i] / spent / matrix_rate);
  }
}

absl::Status PrefillBench::Run(int64_t token_count, double matrix_rate) {
  Random random(static_cast<uint64_t>(token_count));
  std::vector<uint32_t> tokens(static_cast<size_t>(token_count));
  for (uint32_t& token : tokens) {
    token = static_cast<uint32_t>(random.Integer(0, model_->config().vocab_size - 1));
  }
  const int64_t ranges = (token_count + range_tokens_ - 1) / range_tokens_;
  DELTAFILL_TRY(latents_->Reserve(token_count));
  DELTAFILL_TRY(Prefill(tokens, 0, 1));  // makes the lane's workspaces
  auto& lane = static_cast<ObservedOperators&>(lane_->operators());
  SectionTimes sections(model_->config());
  lane.Observe(&sections);
  sections.Start();
  const double start = SecondsNow();
  DELTAFILL_TRY(Prefill(tokens, 0, ranges));
  const double seconds = SecondsNow() - start;
  DELTAFILL_TRY(sections.Finish(lane));
  PrintSections(token_count, seconds, sections, matrix_rate);

  OperatorTimes times;
  lane.Observe(&times);
  const absl::Status again = Prefill(tokens, ranges - 1, ranges);
  lane.Observe(nullptr);
  DELTAFILL_TRY(again);
  double sum = 0;
  for (const auto& [name, spent] : times.seconds()) sum += spent;
  std::printf(
      "\n| operator, %ld tokens after %ld, each call waited for | ms | %% |\n|---|---|---|\n",
      token_count - (ranges - 1) * range_tokens_, (ranges - 1) * range_tokens_);
  for (const auto& [name, spent] : times.seconds()) {
    std::printf("| %s | %.2f | %.1f |\n", name.c_str(), spent * 1e3, 100 * spent / sum);
  }
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status PrefillBench::PrintMemory() {
  kernels::MemoryReport report;
  if (!backend_->ReadMemory(&report).ok()) return absl::OkStatus();  // a CPU has none
  std::printf("memory: %.2f of %.2f GB in use, latents %.2f GB\n",
              static_cast<double>(report.total_bytes - report.free_bytes) * 1e-9,
              static_cast<double>(report.total_bytes) * 1e-9,
              static_cast<double>(latents_->bytes()) * 1e-9);
  return absl::OkStatus();
}

absl::Status Main(const std::vector<std::string>& arguments) {
  const int64_t range_tokens = arguments.size() < 4 ? 0 : std::atol(arguments[2].c_str());
  if (range_tokens < 64 || range_tokens % 64 != 0) {
    return absl::InvalidArgumentError(
        "usage: model_prefill_bench MODEL_DIRECTORY DEVICE RANGE TOKENS... (RANGE: a multiple of "
        "64)");
  }
  DELTAFILL_TRY_ASSIGN(bench, PrefillBench::Open(arguments[1], range_tokens));
  DELTAFILL_TRY_ASSIGN(rate_before, bench->MatrixRate());
  std::printf("matrix rate: %.1f TFLOP/s\n", rate_before * 1e-12);
  DELTAFILL_TRY(bench->Load(arguments[0]));
  for (size_t i = 3; i < arguments.size(); ++i) {
    const int64_t tokens = std::atol(arguments[i].c_str());
    if (tokens < 1) return absl::InvalidArgumentError("TOKENS: not a positive number");
    DELTAFILL_TRY(bench->Run(tokens, rate_before));
    DELTAFILL_TRY(bench->PrintMemory());
  }
  DELTAFILL_TRY_ASSIGN(rate_after, bench->MatrixRate());
  std::printf("matrix rate afterwards: %.1f TFLOP/s\nnumerics %s\n", rate_after * 1e-12,
              bench->numerics().c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace deltafill::test

int main(int argc, char** argv) {
  const absl::Status status =
      deltafill::test::Main(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "model_prefill_bench: %s\n", status.ToString().c_str());
  return 1;
}
