#include "worker/model/state_layout.h"

#include "kernels/tensor.h"
#include "worker/model/config.h"

namespace deltafill::worker {
namespace {

constexpr size_t kEntryAlignmentBytes = 64;

void AppendEntries(const ModelConfig& config, PartKind kind, std::array<uint32_t, 4> shape,
                   StateLayout* layout) {
  size_t bytes = sizeof(float);
  for (uint32_t dim : shape) bytes *= dim;
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    if (config.layers[layer].mixer != MixerKind::kKda) continue;
    layout->entries.push_back({.layer = static_cast<uint32_t>(layer),
                               .kind = kind,
                               .dtype = PartDType::kF32,
                               .shape = shape,
                               .offset = layout->bytes,
                               .bytes = bytes});
    layout->bytes +=
        (bytes + kEntryAlignmentBytes - 1) / kEntryAlignmentBytes * kEntryAlignmentBytes;
  }
}

PartDType PartDTypeOf(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::kBF16:
      return PartDType::kBF16;
    case kernels::DType::kF16:
      return PartDType::kF16;
    case kernels::DType::kF32:
      break;
  }
  return PartDType::kF32;
}

}  // namespace

StateLayout MakeStateLayout(const ModelConfig& config, kernels::DType activation) {
  const auto width = [](int64_t value) { return static_cast<uint32_t>(value); };
  const int64_t channels = 2 * config.kda_heads * config.kda_head_dim +
                           config.kda_value_heads * config.kda_value_head_dim;
  StateLayout layout;
  AppendEntries(config, PartKind::kRecurrent,
                {width(config.kda_value_heads), width(config.kda_value_head_dim),
                 width(config.kda_head_dim), 1},
                &layout);
  AppendEntries(config, PartKind::kConvTail, {width(channels), kernels::kConvTailRows, 1, 1},
                &layout);
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    if (config.layers[layer].mixer != MixerKind::kLatentAttention) continue;
    layout.latents.layers.push_back(static_cast<uint32_t>(layer));
  }
  if (layout.latents.layers.empty()) return layout;
  layout.latents.width = width(config.latent.rank + config.latent.rope_dim);
  layout.latents.dtype = PartDTypeOf(activation);
  return layout;
}

}  // namespace deltafill::worker
