#include "worker/runtime/boundary_saver.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "worker/model/status_steps.h"
#include "worker/runtime/finite_scan.h"
#include "worker/runtime/state_parts.h"

namespace deltafill::worker {

BoundarySaver::BoundarySaver(StateStore* store, const StateLayout* layout,
                             kernels::Backend* backend)
    : store_(store),
      layout_(layout),
      device_(backend->is_host_memory() ? nullptr : backend),
      host_buffers_(backend, BufferPool::Place::kHost),
      prepared_(Prepare()),
      thread_([this] { Run(); }) {}

absl::Status BoundarySaver::Prepare() {
  if (device_ == nullptr) return absl::OkStatus();
  DELTAFILL_TRY(device_->NewOperators(1, &copy_lane_));
  DELTAFILL_TRY_ASSIGN(
      staged, host_buffers_.Acquire(std::max(layout_->bytes, PieceBytesMax(layout_->latents))));
  staged_ = std::move(staged);
  return absl::OkStatus();
}

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
    const uint64_t bytes = BytesOf(*request);
    absl::StatusOr<std::vector<PartReceipt>> receipts = absl::CancelledError("aborted");
    if (!request->flag->aborted() && !stopping_.load(std::memory_order_acquire)) {
      receipts = Put(*request);
    }
    queued_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    request->state.reset();
    request->pieces.clear();
    request->done(std::move(receipts));
    pending_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

absl::StatusOr<std::vector<PartReceipt>> BoundarySaver::Put(SaveRequest& request) {
  DELTAFILL_TRY(prepared_);
  DELTAFILL_TRY(CheckLogitsFinite(request.logits, "last logits"));
  std::vector<PartReceipt> receipts;
  if (request.state != nullptr) DELTAFILL_TRY(PutState(request, &receipts));
  for (LatentPiece& piece : request.pieces) {
    DELTAFILL_TRY_ASSIGN(receipt, PutOnePiece(request, std::move(piece)));
    receipts.push_back(receipt);
  }
  if (!request.logits.empty()) {
    DELTAFILL_TRY_ASSIGN(receipt,
                         PutLogits(*store_, request.tenant, request.boundary, request.logits));
    receipts.push_back(receipt);
  }
  return receipts;
}

absl::Status BoundarySaver::PutState(SaveRequest& request, std::vector<PartReceipt>* receipts) {
  const std::byte* state = request.state->bytes();
  if (device_ != nullptr) {
    DELTAFILL_TRY(copy_lane_->CopyToHost(staged_.get(), state, layout_->bytes));
    DELTAFILL_TRY(copy_lane_->Synchronize());
    request.state.reset();
    state = staged_.get();
  }
  DELTAFILL_TRY(CheckStateFinite(*layout_, state));
  DELTAFILL_TRY_ASSIGN(of_state,
                       PutPrefixState(*store_, request.tenant, *layout_, request.boundary, state));
  *receipts = std::move(of_state);
  return absl::OkStatus();
}

absl::StatusOr<PartReceipt> BoundarySaver::PutOnePiece(const SaveRequest& request,
                                                       LatentPiece piece) {
  const LatentLayout& layout = layout_->latents;
  PieceRows rows = RowsInPages(piece);
  if (device_ != nullptr) {
    const size_t bytes = piece.token_count * layout.RowBytes();
    std::byte* to = staged_.get();
    absl::Status copied;
    for (const std::byte*& layer : rows) {
      copied.Update(FromOperator(copy_lane_->CopyToHost(to, layer, bytes)));
      layer = std::exchange(to, to + bytes);
    }
    // Also after an error: the pages are given back now.
    copied.Update(FromOperator(copy_lane_->Synchronize()));
    DELTAFILL_TRY(copied);
    piece.pages.clear();
    piece.claim.reset();
  }
  DELTAFILL_TRY(CheckPieceFinite(layout, piece, rows));
  return PutPiece(*store_, request.tenant, layout, piece, rows);
}

}  // namespace deltafill::worker
