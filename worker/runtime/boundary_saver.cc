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

void BoundarySaver::Save(SaveRequest request) {
  const uint64_t bytes = request.state->size();
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
    queued_bytes_.fetch_sub(request->state->size(), std::memory_order_relaxed);
    request->state.reset();
    request->done(std::move(receipts));
    pending_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

absl::StatusOr<std::vector<PartReceipt>> BoundarySaver::Put(const SaveRequest& request) {
  DELTAFILL_TRY(CheckStateFinite(*layout_, request.state->bytes()));
  DELTAFILL_TRY(CheckLogitsFinite(request.logits, "last logits"));
  DELTAFILL_TRY_ASSIGN(receipts, PutPrefixState(*store_, request.tenant, *layout_, request.boundary,
                                                request.state->bytes()));
  if (!request.logits.empty()) {
    DELTAFILL_TRY_ASSIGN(receipt,
                         PutLogits(*store_, request.tenant, request.boundary, request.logits));
    receipts.push_back(receipt);
  }
  return receipts;
}

}  // namespace deltafill::worker
