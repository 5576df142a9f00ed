// Golden bits: a numerics id promises bits, so a change of the bits must come with a new id. One
// value an id; an id that is not listed is skipped loudly, and its value printed to be listed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <span>
#include <string>

#include "statestore/sha256.h"
#include "tests/worker/model_fixture.h"
#include "worker/model/init.h"

namespace deltafill::test {
namespace {

using GoldenBits = std::map<std::string, std::string>;  // by numerics id

// SHA-256 of state, captures and logits after 200 tokens of preset tiny, seed 1.
const GoldenBits& TinyBits() {
  static const auto* bits = new GoldenBits{
      {"cpu/f32/avx512/onednn-2.6.3/block64/v1",
       "a6a8f47a70521873f9f57fc5e4397e10ede8e2388daf89954828a490533ae0db"},
      {"cpu/f32/avx2/onednn-2.6.3/block64/v1",
       "e6c5f3cd8efd0a25c1ca81ec6c03dc624ce73a0a393a82f0fe9afc174240d798"},
  };
  return *bits;
}

// And of preset kimi-linear-tiny, its latents and the logits of 3 decoding steps included.
const GoldenBits& HybridBits() {
  static const auto* bits = new GoldenBits{
      {"cpu/f32/avx512/onednn-2.6.3/block64/v1",
       "0c8fb5d6531f5b2199cae99c7477e81486adc523eb3caf182c7467944fb3d6a7"},
      {"cpu/f32/avx2/onednn-2.6.3/block64/v1",
       "b038d4bac173d3b2ed9f1e89695caa9bfdb2aae84fcab0a7d73b50e38452f490"},
  };
  return *bits;
}

std::shared_ptr<kernels::Backend> BackendOfTestIsa() {
  kernels::BackendOptions options;
  if (const char* isa = std::getenv("DELTAFILL_TEST_ISA")) options.isa = isa;
  std::unique_ptr<kernels::Backend> backend;
  const kernels::Status status = kernels::NewCpuBackend(options, &backend);
  EXPECT_TRUE(status.ok()) << status.message();
  return backend;
}

void Update(const RangeResult& result, Sha256* hash) {
  hash->Update(std::as_bytes(std::span(result.state)));
  for (const PrefixState& capture : result.captures) {
    hash->Update(std::as_bytes(std::span(capture)));
  }
  hash->Update(std::as_bytes(std::span(result.logits)));
}

class GoldenBitsTest : public testing::Test {
 protected:
  void Load(const char* preset) {
    const std::string path = directory_.path() + "/" + preset;
    ASSERT_TRUE(InitModel(preset, 1, path).ok());
    auto model = LoadModel(path, BackendOfTestIsa());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    auto lane = model_->NewLane(1, 256);
    ASSERT_TRUE(lane.ok()) << lane.status();
    lane_ = *std::move(lane);
  }

  void Compare(Sha256& hash, const GoldenBits& golden) {
    const std::string numerics = model_->backend().numerics();
    const std::string bits = StateId{hash.Finish()}.ToHex();
    const auto known = golden.find(numerics);
    if (known == golden.end()) {
      GTEST_SKIP() << "no golden bits for numerics " << numerics << "; they are " << bits;
    }
    EXPECT_EQ(bits, known->second)
        << "the bits of " << numerics << " changed: raise the version in its numerics string";
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Model> model_;
  std::shared_ptr<Lane> lane_;
};

TEST_F(GoldenBitsTest, TinyModel) {
  ASSERT_NO_FATAL_FAILURE(Load("tiny"));
  Sha256 hash;
  Update(PrefillRange(*model_, *lane_, RandomTokens(*model_, 200, 1), {64, 192}, nullptr), &hash);
  Compare(hash, TinyBits());
}

TEST_F(GoldenBitsTest, TinyHybrid) {
  ASSERT_NO_FATAL_FAILURE(Load("kimi-linear-tiny"));
  Sha256 hash;
  LatentCache latents = NewLatents(*model_);
  RangeResult result =
      PrefillRange(*model_, *lane_, RandomTokens(*model_, 200, 1), {64, 192}, nullptr, &latents);
  Update(result, &hash);
  for (uint64_t position = 200; position < 203; ++position) {
    const DecodeRow row{.token = static_cast<uint32_t>(position),
                        .position = position,
                        .state = result.state.data(),
                        .latents = &latents};
    ASSERT_TRUE(model_->DecodeStep(*lane_, {&row, 1}, result.logits).ok());
    hash.Update(std::as_bytes(std::span(result.logits)));
  }
  for (uint32_t layer : model_->state_layout().latents.layers) {
    const std::vector<float> rows = LatentRows(latents, layer, 0, 203);
    hash.Update(std::as_bytes(std::span(rows)));
  }
  Compare(hash, HybridBits());
}

}  // namespace
}  // namespace deltafill::test
