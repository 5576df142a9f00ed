#include "worker/runtime/latent_pool.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {

struct LatentPool::Core {
  Core(size_t page, size_t max) : page_bytes(page), bytes_max(max) {}

  const size_t page_bytes;  // of all layers
  const size_t bytes_max;
  std::mutex mutex;
  std::condition_variable given_back;
  size_t claimed = 0;  // guarded by mutex
};

class LatentClaim {
 public:
  explicit LatentClaim(std::shared_ptr<LatentPool::Core> pool) : pool_(std::move(pool)) {}
  ~LatentClaim() {
    {
      const std::lock_guard<std::mutex> lock(pool_->mutex);
      pool_->claimed -= bytes_;
    }
    pool_->given_back.notify_all();
  }
  LatentClaim(const LatentClaim&) = delete;
  LatentClaim& operator=(const LatentClaim&) = delete;

  absl::Status Extend(uint64_t tokens, std::chrono::milliseconds wait,
                      const std::function<bool()>& given_up) {
    // Whoever gives up says so to nobody here.
    constexpr std::chrono::milliseconds kLook{20};
    const uint64_t pages = (tokens + kLatentPieceTokens - 1) / kLatentPieceTokens;
    const size_t wanted = pages * pool_->page_bytes;
    const auto end = std::chrono::steady_clock::now() + wait;
    std::unique_lock<std::mutex> lock(pool_->mutex);
    if (wanted <= bytes_) return absl::OkStatus();
    while (wanted - bytes_ > pool_->bytes_max - pool_->claimed) {
      if (wanted > pool_->bytes_max || std::chrono::steady_clock::now() >= end) {
        return absl::ResourceExhaustedError(
            absl::StrCat("latents: ", tokens, " tokens take ", wanted, " bytes at this worker; ",
                         pool_->claimed - bytes_, " bytes are in use by others, the limit is ",
                         pool_->bytes_max));
      }
      if (given_up()) return absl::CancelledError("aborted");
      pool_->given_back.wait_for(lock, kLook);
    }
    pool_->claimed += wanted - bytes_;
    bytes_ = wanted;
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<LatentPool::Core> pool_;
  size_t bytes_ = 0;
};

absl::Status SequenceLatents::Claim(uint64_t tokens) {
  return claim_->Extend(tokens, std::chrono::milliseconds(0), [] { return false; });
}

absl::Status SequenceLatents::ClaimWhenFree(uint64_t tokens, std::chrono::milliseconds wait,
                                            const std::function<bool()>& given_up) {
  return claim_->Extend(tokens, wait, given_up);
}

absl::Status SequenceLatents::Reserve(uint64_t tokens) {
  DELTAFILL_TRY(Claim(tokens));
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

size_t LatentPool::bytes_claimed() const {
  const std::lock_guard<std::mutex> lock(core_->mutex);
  return core_->claimed;
}

uint64_t LatentPool::tokens_max() const {
  if (core_->page_bytes == 0) return 0;
  return core_->bytes_max / core_->page_bytes * kLatentPieceTokens;
}

}  // namespace deltafill::worker
