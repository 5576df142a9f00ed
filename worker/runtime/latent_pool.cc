#include "worker/runtime/latent_pool.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {

struct LatentPool::Core {
  Core(size_t page, size_t max) : page_bytes(page), bytes_max(max) {}

  const size_t page_bytes;  // of all layers
  const size_t bytes_max;
  std::atomic<size_t> claimed{0};
};

class LatentClaim {
 public:
  explicit LatentClaim(std::shared_ptr<LatentPool::Core> pool) : pool_(std::move(pool)) {}
  ~LatentClaim() { pool_->claimed.fetch_sub(bytes_); }
  LatentClaim(const LatentClaim&) = delete;
  LatentClaim& operator=(const LatentClaim&) = delete;

  absl::Status Extend(uint64_t tokens) {
    const uint64_t pages = (tokens + kLatentPieceTokens - 1) / kLatentPieceTokens;
    const size_t wanted = pages * pool_->page_bytes;
    if (wanted <= bytes_) return absl::OkStatus();
    const size_t more = wanted - bytes_;
    size_t claimed = pool_->claimed.load();
    do {
      if (more > pool_->bytes_max - claimed) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "latents: ", tokens, " tokens take ", wanted, " bytes at this worker; ",
            claimed - bytes_, " bytes are in use by others, the limit is ", pool_->bytes_max));
      }
    } while (!pool_->claimed.compare_exchange_weak(claimed, claimed + more));
    bytes_ = wanted;
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<LatentPool::Core> pool_;
  size_t bytes_ = 0;
};

absl::Status SequenceLatents::Claim(uint64_t tokens) { return claim_->Extend(tokens); }

absl::Status SequenceLatents::Reserve(uint64_t tokens) {
  DELTAFILL_TRY(claim_->Extend(tokens));
  return cache_.Reserve(static_cast<int64_t>(tokens));
}

LatentClaimRef SequenceLatents::claim() const { return claim_; }

LatentPool::LatentPool(kernels::Backend* backend, const LatentLayout* layout, size_t bytes_max)
    : backend_(backend),
      layout_(layout),
      core_(std::make_shared<Core>(layout->layers.size() * kLatentPieceTokens * layout->RowBytes(),
                                   bytes_max)) {}

std::shared_ptr<SequenceLatents> LatentPool::NewSequence() const {
  return std::shared_ptr<SequenceLatents>(
      new SequenceLatents(backend_, layout_, std::make_shared<LatentClaim>(core_)));
}

size_t LatentPool::bytes_claimed() const { return core_->claimed.load(); }

}  // namespace deltafill::worker
