// Latent attention and mixtures of experts on several lanes of several threads at once, with shared
// weights and caches, give the bits that one thread alone gives.
#include <thread>

#include "tests/kernels/cpu_latent_test_base.h"
#include "tests/kernels/cpu_mixture_test_base.h"

namespace deltafill::kernels {
namespace {

using test::ByteDifference;
using test::Random;

class CpuHybridLanesTest : public CpuLatentTest {};

TEST_F(CpuHybridLanesTest, RunAtOnceOnSharedWeights) {
  Random random(1);
  const auto projection = Project(kOddDims, RandomProjection(kOddDims, random));
  const CachedLatents latents(kOddDims, 1100, random);
  const auto q = random.NormalVector(1100 * kOddDims.QueryWidth());
  const LatentSequence steps[] = {latents.At(1099), latents.At(3), latents.At(1024)};
  const auto mixture = RandomMixture({16, 3, 40, 24}, random);
  const LoadedMixture loaded(mixture, [this](const std::vector<float>& w, int64_t out, int64_t in) {
    return NewWeight(w, out, in);
  });
  const auto x = random.NormalVector(200 * 40);
  const auto run = [&](int threads) {
    auto all = PrefillRange(*projection, q, latents, 832, 268, threads);
    for (const auto& more :
         {Step(*projection, Slice(q, 0, 3, kOddDims.QueryWidth()), steps, threads),
          loaded.Run(*Lane(threads), x)}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  std::vector<std::vector<float>> results(3);
  std::vector<std::thread> users;
  for (size_t user = 0; user < results.size(); ++user) {
    users.emplace_back([&, user] { results[user] = run(static_cast<int>(user) + 1); });
  }
  for (std::thread& user : users) user.join();
  const auto alone = run(1);
  ASSERT_TRUE(test::AllFinite(alone));
  for (const auto& result : results) EXPECT_EQ(ByteDifference(result, alone), "");
}

}  // namespace
}  // namespace deltafill::kernels
