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

}  // namespace

StateLayout MakeStateLayout(const ModelConfig& config) {
  const uint32_t heads = static_cast<uint32_t>(config.kda_heads);
  const uint32_t dim = static_cast<uint32_t>(config.kda_head_dim);
  StateLayout layout;
  AppendEntries(config, PartKind::kRecurrent, {heads, dim, dim, 1}, &layout);
  AppendEntries(config, PartKind::kConvTail, {3 * heads * dim, kernels::kConvTailRows, 1, 1},
                &layout);
  return layout;
}

}  // namespace deltafill::worker
