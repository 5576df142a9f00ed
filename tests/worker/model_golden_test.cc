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

// SHA-256 of state, capture and logits after 200 tokens of preset tiny, seed 1.
const std::map<std::string, std::string>& GoldenBits() {
  static const auto* bits = new std::map<std::string, std::string>{
      {"cpu/f32/avx512/onednn-2.6.3/block64/v1",
       "a6a8f47a70521873f9f57fc5e4397e10ede8e2388daf89954828a490533ae0db"},
      {"cpu/f32/avx2/onednn-2.6.3/block64/v1",
       "e6c5f3cd8efd0a25c1ca81ec6c03dc624ce73a0a393a82f0fe9afc174240d798"},
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

std::string HashOf(const RangeResult& result) {
  Sha256 hash;
  hash.Update(std::as_bytes(std::span(result.state)));
  for (const PrefixState& capture : result.captures) hash.Update(std::as_bytes(std::span(capture)));
  hash.Update(std::as_bytes(std::span(result.logits)));
  return StateId{hash.Finish()}.ToHex();
}

TEST(GoldenBitsTest, TinyModel) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/tiny";
  ASSERT_TRUE(InitModel("tiny", 1, path).ok());
  const std::shared_ptr<kernels::Backend> backend = BackendOfTestIsa();
  const std::string numerics = backend->numerics();
  auto model = LoadModel(path, backend);
  ASSERT_TRUE(model.ok()) << model.status();
  auto lane = (*model)->NewLane(1, 256);
  ASSERT_TRUE(lane.ok()) << lane.status();
  const RangeResult result =
      PrefillRange(**model, **lane, RandomTokens(**model, 200, 1), {64, 192}, nullptr);
  const std::string hash = HashOf(result);
  const auto golden = GoldenBits().find(numerics);
  if (golden == GoldenBits().end()) {
    GTEST_SKIP() << "no golden bits for numerics " << numerics << "; they are " << hash;
  }
  EXPECT_EQ(hash, golden->second) << "the bits of " << numerics
                                  << " changed: raise the version in its numerics string";
}

}  // namespace
}  // namespace deltafill::test
