#include "worker/runtime/range_port.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/latent_rows.h"

namespace deltafill::worker {

RangePort::RangePort(const StateLayout* layout, BoundaryExchange* exchange, RangePass pass,
                     std::function<void(uint32_t layers_done)> on_task_done)
    : layout_(layout),
      exchange_(exchange),
      pass_(std::move(pass)),
      on_task_done_(std::move(on_task_done)) {}

absl::StatusOr<const void*> RangePort::Await(uint32_t layer, PartKind kind) {
  if (pass_.source == RangePass::Source::kZero) return nullptr;
  const StateEntry* entry = layout_->Find(layer, kind);
  if (entry == nullptr) {
    return absl::InternalError(absl::StrCat("layer ", layer, " asked for a state it has not"));
  }
  if (pass_.source == RangePass::Source::kPeer) {
    DELTAFILL_TRY_ASSIGN(received, AwaitPeer(layer, kind));
    std::memcpy(pass_.incoming->at(*entry), received.data(), entry->bytes);
  }
  return pass_.incoming->at(*entry);
}

void* RangePort::Outgoing(uint32_t layer, PartKind kind) {
  const StateEntry* entry = layout_->Find(layer, kind);
  if (pass_.outgoing == nullptr || entry == nullptr) return nullptr;
  return pass_.outgoing->at(*entry);
}

absl::Status RangePort::HandOn(uint32_t layer, PartKind kind) {
  if (pass_.next == nullptr) return absl::OkStatus();
  if (pass_.flag->aborted()) return absl::CancelledError("aborted");
  const StateEntry* entry = layout_->Find(layer, kind);
  if (entry == nullptr || pass_.outgoing == nullptr) {
    return absl::InternalError(absl::StrCat("layer ", layer, " handed on a state it has not"));
  }
  return PublishToNext(layer, kind, {pass_.outgoing->at(*entry), entry->bytes});
}

absl::StatusOr<ReceivedState> RangePort::AwaitPeer(uint32_t layer, PartKind kind) {
  const auto before = std::chrono::steady_clock::now();
  absl::StatusOr<ReceivedState> received =
      exchange_->Await({pass_.attempt, pass_.range, layer, kind});
  wait_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  return received;
}

absl::Status RangePort::PublishToNext(uint32_t layer, PartKind kind,
                                      std::span<const std::byte> bytes) {
  absl::Status status = exchange_->Publish({pass_.attempt, pass_.range + 1, layer, kind},
                                           OnHost(bytes), {pass_.next, 1});
  peer_lost_ = peer_lost_ || absl::IsUnavailable(status);
  return status;
}

void* RangePort::Capture(int capture, uint32_t layer, PartKind kind) {
  const StateEntry* entry = layout_->Find(layer, kind);
  if (entry == nullptr) return nullptr;
  return pass_.captures.at(static_cast<size_t>(capture))->at(*entry);
}

absl::StatusOr<kernels::LatentSequence> RangePort::Latents(uint32_t layer) {
  if (pass_.latents == nullptr) {
    return absl::InternalError(absl::StrCat("layer ", layer, " asked for latents it has not"));
  }
  return kernels::LatentSequence{pass_.latents->Pages(layer),
                                 static_cast<int64_t>(pass_.first_token)};
}

absl::Status RangePort::ShareLatents(uint32_t layer) {
  if (pass_.flag->aborted()) return absl::CancelledError("aborted");
  if (pass_.source == RangePass::Source::kPeer && pass_.held < pass_.first_token) {
    DELTAFILL_TRY(AwaitEarlierLatents(layer));
  }
  const uint64_t end = pass_.first_token + pass_.token_count;
  if (pass_.next == nullptr || pass_.next_holds >= end) return absl::OkStatus();
  return PublishToNext(layer, PartKind::kLatent,
                       GatherLatents(*pass_.latents, layer, pass_.next_holds, end));
}

absl::Status RangePort::AwaitEarlierLatents(uint32_t layer) {
  DELTAFILL_TRY_ASSIGN(received, AwaitPeer(layer, PartKind::kLatent));
  const uint64_t rows = pass_.first_token - pass_.held;
  if (received.bytes() != rows * layout_->latents.RowBytes()) {
    return absl::InternalError(absl::StrCat("layer ", layer, ": the previous range's worker sent ",
                                            received.bytes(),
                                            " bytes of latents, but those of tokens [", pass_.held,
                                            ", ", pass_.first_token, ") were missing"));
  }
  ScatterLatents({received.data(), received.bytes()}, layer, pass_.held, *pass_.latents);
  return absl::OkStatus();
}

absl::Status RangePort::TaskDone(uint32_t layer) {
  if (pass_.flag->aborted()) return absl::CancelledError("aborted");
  if (on_task_done_) on_task_done_(layer + 1);
  return absl::OkStatus();
}

}  // namespace deltafill::worker
