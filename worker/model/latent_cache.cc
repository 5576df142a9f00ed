#include "worker/model/latent_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace deltafill::worker {

LatentCache::LatentCache(kernels::Backend* backend, const LatentLayout* layout)
    : backend_(backend), layout_(layout), layers_(layout->layers.size()) {}

absl::Status LatentCache::Reserve(int64_t tokens) {
  const size_t page_bytes = static_cast<size_t>(kernels::kLatentPageTokens) * layout_->RowBytes();
  while (capacity_tokens_ < tokens) {
    for (LayerPages& layer : layers_) {
      // A layer may have this page from a growth that failed at a later layer.
      if (static_cast<int64_t>(layer.owned.size()) * kernels::kLatentPageTokens >
          capacity_tokens_) {
        continue;
      }
      absl::StatusOr<DeviceBuffer> page = DeviceBuffer::Allocate(*backend_, page_bytes);
      if (!page.ok()) {
        return absl::ResourceExhaustedError(absl::StrCat("latent cache: ", bytes(), " bytes hold ",
                                                         capacity_tokens_, " tokens, no room for ",
                                                         page_bytes, " bytes more"));
      }
      layer.owned.push_back(std::make_shared<const DeviceBuffer>(*std::move(page)));
      layer.starts.push_back(layer.owned.back()->get());
    }
    capacity_tokens_ += kernels::kLatentPageTokens;
  }
  return absl::OkStatus();
}

std::span<void* const> LatentCache::Pages(uint32_t layer) const { return PagesOf(layer).starts; }

LatentPage LatentCache::Page(uint32_t layer, size_t index) const {
  return PagesOf(layer).owned.at(index);
}

size_t LatentCache::bytes() const {
  size_t total = 0;
  for (const LayerPages& layer : layers_) {
    for (const LatentPage& page : layer.owned) total += page->bytes();
  }
  return total;
}

const LatentCache::LayerPages& LatentCache::PagesOf(uint32_t layer) const {
  const auto found = std::lower_bound(layout_->layers.begin(), layout_->layers.end(), layer);
  return layers_.at(static_cast<size_t>(found - layout_->layers.begin()));
}

}  // namespace deltafill::worker
