// Presets are models that the CUDA backend takes: its checks of their shapes, without a card.
#include <gtest/gtest.h>

#include "kernels/cuda/check_operators.h"
#include "kernels/cuda/latent_plan.h"
#include "kernels/cuda/plan.h"
#include "worker/model/init.h"

namespace deltafill::worker {
namespace {

kernels::DeltaRuleShape RuleShape(const ModelConfig& config) {
  kernels::DeltaRuleShape shape;
  shape.heads = static_cast<int>(config.kda_heads);
  shape.value_heads = static_cast<int>(config.kda_value_heads);
  shape.key_dim = static_cast<int>(config.kda_head_dim);
  shape.value_dim = static_cast<int>(config.kda_value_head_dim);
  return shape;
}

kernels::LatentShape LatentShapeOf(const ModelConfig& config) {
  kernels::LatentShape shape;
  shape.heads = static_cast<int>(config.latent.heads);
  shape.nope_dim = static_cast<int>(config.latent.nope_dim);
  shape.rope_dim = static_cast<int>(config.latent.rope_dim);
  shape.value_dim = static_cast<int>(config.latent.value_dim);
  shape.rank = static_cast<int>(config.latent.rank);
  return shape;
}

TEST(PresetCudaTest, EveryPresetHasShapesOfTheBackend) {
  for (const std::string& name : ModelPresetNames()) {
    const auto preset = FindModelPreset(name);
    ASSERT_TRUE(preset.ok()) << preset.status();
    const ModelConfig& config = preset->config;
    kernels::Status status = kernels::cuda::CheckShape(RuleShape(config));
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
    uint16_t weight = 0;
    for (const int64_t width : {config.hidden_size, config.intermediate_size}) {
      status = kernels::cuda::CheckWeight(&weight, kernels::DType::kBF16, width, width);
      EXPECT_TRUE(status.ok()) << name << ": " << status.message();
    }
    if (!config.HasLatentAttention()) continue;
    status = kernels::cuda::CheckLatentShape(LatentShapeOf(config));
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
  }
}

}  // namespace
}  // namespace deltafill::worker
