// The latents of one sequence: what its attention layers keep of every token.
#ifndef DELTAFILL_WORKER_MODEL_LATENT_CACHE_H_
#define DELTAFILL_WORKER_MODEL_LATENT_CACHE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/latent_attention.h"
#include "kernels/operators.h"
#include "worker/model/device_buffer.h"
#include "worker/model/state_layout.h"

namespace deltafill::worker {

// kernels::kLatentPageTokens rows of one layer. What has been written of it does not change while
// somebody else holds it; rows after that may still be written.
using LatentPage = std::shared_ptr<const DeviceBuffer>;

// Grows by whole pages. One thread at a time; pages that were taken may be read by others.
class LatentCache {
 public:
  // Backend and layout outlive the cache; pages that were taken must go before the backend.
  LatentCache(kernels::Backend* backend, const LatentLayout* layout);

  // Room for tokens [0, tokens) at every layer. RESOURCE_EXHAUSTED with the bytes if it does not
  // fit; pages that are there stay.
  absl::Status Reserve(int64_t tokens);

  int64_t capacity_tokens() const { return capacity_tokens_; }
  // The layer must be one of the layout's.
  std::span<void* const> Pages(uint32_t layer) const;
  LatentPage Page(uint32_t layer, size_t index) const;
  size_t bytes() const;  // of all pages

  const LatentLayout& layout() const { return *layout_; }

 private:
  struct LayerPages {
    std::vector<LatentPage> owned;
    std::vector<void*> starts;  // of owned, as operators take them
  };
  const LayerPages& PagesOf(uint32_t layer) const;

  kernels::Backend* const backend_;
  const LatentLayout* const layout_;
  std::vector<LayerPages> layers_;  // in the order of layout_->layers
  int64_t capacity_tokens_ = 0;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_LATENT_CACHE_H_
