// Whole models with the lanes, exchange and saving of real workers on one card: promise 1 for
// several workers in one process, and the CPU's values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/gpu/backend_fixture.h"
#include "tests/testing/prompt_outcome.h"
#include "tests/testing/relative_error.h"
#include "tests/testing/serving_memory.h"
#include "tests/worker/model_fixture.h"
#include "worker/model/init.h"

namespace deltafill::worker {
namespace {

using test::LaneBench;
using test::PromptOutcome;

constexpr int64_t kRangeTokensMax = 4096;
constexpr uint32_t kVocabulary = 256;  // of the tokens used

// The parameter is a preset.
class GpuWorkerTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::unique_ptr<kernels::Backend> backend;
    kernels::Status opened;
    if (test::TestsUseDevice()) {
      backend = test::NewFakeDevice();  // tests this test where there is no card
    } else {
      opened = kernels::NewCudaBackend({.compute_dtype = kernels::DType::kBF16}, &backend);
    }
    if (!opened.ok() && test::DeviceIsRequired()) FAIL() << opened.message();
    if (!opened.ok()) GTEST_SKIP() << "no CUDA device: " << opened.message();
    backend_ = std::move(backend);
    const absl::Status made = InitModel(GetParam(), 1, directory_.path() + "/model");
    ASSERT_TRUE(made.ok()) << made;
    model_ = Load(backend_);
  }

  std::unique_ptr<Model> Load(std::shared_ptr<kernels::Backend> backend) {
    auto model = LoadModel(directory_.path() + "/model", std::move(backend));
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *std::move(model) : nullptr;
  }

  // Which experts a token gets is a matter of bits where two of them score alike: one that changes
  // is no rounding error, and a recurrent state remembers it.
  void GiveTokensEveryExpert() {
    const std::string path = directory_.path() + "/model/config.json";
    nlohmann::json config = nlohmann::json::parse(std::ifstream(path));
    if (!config.contains("num_experts")) return;
    config["num_experts_per_token"] = config["num_experts"];
    std::ofstream(path) << config;
    model_ = Load(backend_);
  }

  void MakeWorkers(Model& model, size_t count, bool remote = false) {
    workers_.clear();
    auto registry = std::make_shared<MailboxRegistry>();
    for (size_t i = 0; i < count; ++i) {
      workers_.push_back(std::make_unique<LaneBench>(
          &model, store_.get(), registry, static_cast<uint32_t>(i), size_t{1} << 30, remote));
      workers_.back()->MakePrefill({2, kRangeTokensMax, size_t{256} << 20});
    }
  }

  PromptOutcome Run(const std::vector<uint32_t>& tokens, size_t range_tokens, size_t every,
                    const test::WavefrontStart& start = {}) {
    size_t boundaries = 0;
    const size_t last = (tokens.size() - 1) / 64 * 64;
    for (size_t boundary = start.boundary + 64; boundary <= last; boundary += 64) {
      if (boundary % every == 0 || boundary == last) ++boundaries;
    }
    const size_t pieces =
        model_->state_layout().latents.layers.empty()
            ? 0
            : tokens.size() / kLatentPieceTokens - start.boundary / kLatentPieceTokens;
    test::RunWavefront(workers_, {++prompt_, 1}, tokens, range_tokens, every, start);
    return test::Collect(workers_, boundaries, pieces);
  }

  static double RelativeError(const std::vector<float>& actual,
                              const std::vector<float>& expected) {
    return test::RelativeError(actual, std::vector<double>(expected.begin(), expected.end()));
  }

  static void ExpectSame(const PromptOutcome& outcome, const PromptOutcome& reference) {
    for (const auto& [boundary, parts] : outcome.boundaries) {
      EXPECT_EQ(parts, reference.boundaries.at(boundary)) << boundary;
    }
    for (const auto& [end, piece] : outcome.pieces) EXPECT_EQ(piece, reference.pieces.at(end));
    EXPECT_EQ(outcome.logits, reference.logits);
  }

  test::TemporaryDirectory directory_;
  std::shared_ptr<kernels::Backend> backend_;
  std::unique_ptr<StateStore> store_ = NewMemoryStore({});
  std::unique_ptr<Model> model_;
  std::vector<std::unique_ptr<LaneBench>> workers_;
  uint64_t prompt_ = 0;
};

TEST_P(GpuWorkerTest, WorkersRangesCheckpointsAndTransportsDoNotShow) {
  ASSERT_NE(model_, nullptr);
  const std::vector<uint32_t> tokens = test::RandomTokens(1, 5000, kVocabulary);
  MakeWorkers(*model_, 1);
  const PromptOutcome reference = Run(tokens, 4096, 64);
  ASSERT_EQ(reference.boundaries.size(), 78u);
  for (size_t worker_count : {1u, 2u, 4u}) {
    for (size_t range_tokens : {64u, 448u, 2048u}) {
      for (bool remote : {false, true}) {
        SCOPED_TRACE(testing::Message() << worker_count << " workers, ranges of " << range_tokens
                                        << (remote ? ", gRPC" : ", in process"));
        MakeWorkers(*model_, worker_count, remote);
        ExpectSame(Run(tokens, range_tokens, 512), reference);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(GpuWorkerTest, ResumingAndDecodingAgreeWithPrefill) {
  ASSERT_NE(model_, nullptr);
  const std::vector<uint32_t> tokens = test::RandomTokens(2, 4300, kVocabulary);
  MakeWorkers(*model_, 1);
  LaneBench& worker = *workers_[0];
  worker.MakeDecode({2, 512, 16});
  DecodeCommand decode = test::SavingDecode(tokens, 150);
  decode.attempt = {1000, 1};
  const auto answer = test::DecodeAndSave(worker, decode);
  ASSERT_TRUE(answer.has_value());
  const std::vector<uint32_t>& all = answer->tokens;
  ASSERT_EQ(all.size(), 4450u);

  const PromptOutcome prefilled = Run(all, 4096, 64);
  std::vector<PartId> whole = prefilled.boundaries.at(4416);
  for (const auto& [end, piece] : prefilled.pieces) whole.insert(whole.end() - 1, piece);
  EXPECT_EQ(test::IdsOf(answer->saved.parts), whole);

  // The answer again, from stored states, all of them at once: what else is in the batch does not
  // show.
  const std::vector<uint64_t> boundaries = {64, 1024, 4032, 4096, 4288};
  for (uint64_t boundary : boundaries) {
    const test::WavefrontStart start = test::StartAt(prefilled, boundary);
    DecodeCommand resumed = decode;
    resumed.attempt = {1000 + boundary, 1};
    resumed.first_token = boundary;
    resumed.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(boundary), tokens.end());
    resumed.source = {StateSource::From::kStored, start.parts};
    resumed.stored_latents = start.latents;
    worker.decode->Run(resumed);
  }
  ASSERT_TRUE(worker.sink.WaitFor<DecodeFinished>(1 + boundaries.size()));
  std::map<uint64_t, std::vector<uint32_t>> answers;
  for (const DecodeToken& token : worker.sink.Of<DecodeToken>()) {
    answers[token.attempt.prompt].push_back(token.id);
  }
  ASSERT_EQ(answers.size(), 1 + boundaries.size());
  for (const auto& [prompt, ids] : answers) EXPECT_EQ(ids, answers[1000]) << prompt;

  for (size_t worker_count : {1u, 3u}) {
    for (uint64_t boundary : boundaries) {
      SCOPED_TRACE(testing::Message() << worker_count << " workers, from " << boundary);
      MakeWorkers(*model_, worker_count);
      ExpectSame(Run(all, 192, 64, test::StartAt(prefilled, boundary)), prefilled);
    }
  }
}

TEST_P(GpuWorkerTest, StatesAndLogitsAreTheCpus) {
  GiveTokensEveryExpert();
  ASSERT_NE(model_, nullptr);
  std::unique_ptr<kernels::Backend> cpu_backend;
  test::Must(kernels::NewCpuBackend({}, &cpu_backend));
  const std::unique_ptr<Model> cpu = Load(std::move(cpu_backend));
  ASSERT_NE(cpu, nullptr);
  const std::vector<uint32_t> tokens = test::RandomTokens(3, 1000, kVocabulary);
  std::vector<std::vector<std::byte>> states;
  std::vector<std::vector<float>> logits;
  for (Model* model : {cpu.get(), model_.get()}) {
    MakeWorkers(*model, 2);
    PromptOutcome outcome = Run(tokens, 256, 960);
    std::vector<PartId> parts = outcome.boundaries.at(960);
    parts.resize(2);  // without latents
    std::vector<std::byte> state(model->state_layout().bytes);
    const absl::Status loaded =
        LoadPrefixState(*store_, parts, model->state_layout(), 960, state.data());
    ASSERT_TRUE(loaded.ok()) << loaded;
    states.push_back(std::move(state));
    logits.push_back(std::move(outcome.logits));
    workers_.clear();
  }
  for (const StateEntry& entry : cpu->state_layout().entries) {
    const StateEntry& on_gpu = *model_->state_layout().Find(entry.layer, entry.kind);
    ASSERT_EQ(entry.bytes, on_gpu.bytes);
    const auto floats = [&](const std::vector<std::byte>& state, size_t offset) {
      std::vector<float> values(entry.bytes / sizeof(float));
      std::memcpy(values.data(), state.data() + offset, entry.bytes);
      return values;
    };
    const double error =
        RelativeError(floats(states[1], on_gpu.offset), floats(states[0], entry.offset));
    std::printf("layer %u, %s: relative error %.2e\n", entry.layer,
                entry.kind == PartKind::kRecurrent ? "recurrent state" : "convolution tail", error);
    EXPECT_LT(error, 0.03) << "layer " << entry.layer;
  }
  const double error = RelativeError(logits[1], logits[0]);
  std::printf("logits: relative error %.2e\n", error);
  EXPECT_LT(error, 0.03);
}

TEST_P(GpuWorkerTest, ServingTakesNoMemoryFromTheDevice) {
  ASSERT_NE(model_, nullptr);
  for (size_t worker_count : {1u, 3u}) {
    test::ServeWithinThePlan(*model_, kernels::DType::kBF16, *store_, worker_count);
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, GpuWorkerTest, testing::Values("small", "kimi-linear-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace deltafill::worker
