#include "worker/runtime/boundary_saver.h"

#include <optional>
#include <utility>

#include "worker/model/status_steps.h"
#include "worker/runtime/finite_scan.h"
#include "worker/runtime/state_parts.h"

namespace deltafill::worker {

BoundarySaver::BoundarySaver(StateStore* store, const StateLayout* layout)
    : store_(store), layout_(layout), thread_([this] { Run(); }) {}

BoundarySaver::~BoundarySaver() {
  stopping_.store(true, std::memory_order_release);
  queue_.Close();
  thread_.join();
}

uint64_t BoundarySaver::BytesOf(const SaveRequest& request) const {
  uint64_t bytes = request.state == nullptr ? 0 : request.state->size();
  for (const LatentPiece& piece : request.pieces) {
    bytes += piece.pages.size() * piece.token_count * layout_->latents.RowBytes();
  }
  return bytes;
}

void BoundarySaver::Save(SaveRequest request) {
  const uint64_t bytes = BytesOf(request);
  queued_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  pending_.fetch_add(1, std::memory_order_acq_rel);
  SaveDone done = request.done;
  if (queue_.Push(std::move(request))) return;
  queued_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  done(absl::CancelledError("the saver has stopped"));
  pending_.fetch_sub(1, std::memory_order_acq_rel);
}

void BoundarySaver::Run() {
  while (std::optional<SaveRequest> request = queue_.Pop()) {
    absl::StatusOr<std::vector<PartReceipt>> receipts = absl::CancelledError("aborted");
    if (!request->flag->aborted() && !stopping_.load(std::memory_order_acquire)) {
      receipts = Put(*request);
    }
    queued_bytes_.fetch_sub(BytesOf(*request), std::memory_order_relaxed);
    request->state.reset();
    request->pieces.clear();
    request->done(std::move(receipts));
    pending_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

absl::StatusOr<std::vector<PartReceipt>> BoundarySaver::Put(const SaveRequest& request) {
  if (request.state != nullptr) DELTAFILL_TRY(CheckStateFinite(*layout_, request.state->bytes()));
  for (const LatentPiece& piece : request.pieces) {
    DELTAFILL_TRY(CheckPieceFinite(layout_->latents, piece));
  }
  DELTAFILL_TRY(CheckLogitsFinite(request.logits, "last logits"));
  std::vector<PartReceipt> receipts;
  if (request.state != nullptr) {
    DELTAFILL_TRY_ASSIGN(of_state, PutPrefixState(*store_, request.tenant, *layout_,
                                                  request.boundary, request.state->bytes()));
    receipts = std::move(of_state);
  }
  for (const LatentPiece& piece : request.pieces) {
    DELTAFILL_TRY_ASSIGN(receipt, PutPiece(*store_, request.tenant, layout_->latents, piece));
    receipts.push_back(receipt);
  }
  if (!request.logits.empty()) {
    DELTAFILL_TRY_ASSIGN(receipt,
                         PutLogits(*store_, request.tenant, request.boundary, request.logits));
    receipts.push_back(receipt);
  }
  return receipts;
}

}  // namespace deltafill::worker
