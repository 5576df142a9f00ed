#include "worker/runtime/range_port.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

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
    const auto before = std::chrono::steady_clock::now();
    absl::StatusOr<std::vector<std::byte>> received =
        exchange_->Await({pass_.attempt, pass_.range, layer, kind});
    wait_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
    if (!received.ok()) return received.status();
    std::memcpy(pass_.incoming->at(*entry), received->data(), entry->bytes);
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
  absl::Status status =
      exchange_->Publish({pass_.attempt, pass_.range + 1, layer, kind},
                         {pass_.outgoing->at(*entry), entry->bytes}, {pass_.next, 1});
  peer_lost_ = peer_lost_ || absl::IsUnavailable(status);
  return status;
}

void* RangePort::Capture(int capture, uint32_t layer, PartKind kind) {
  const StateEntry* entry = layout_->Find(layer, kind);
  if (entry == nullptr) return nullptr;
  return pass_.captures.at(static_cast<size_t>(capture))->at(*entry);
}

absl::StatusOr<kernels::LatentSequence> RangePort::Latents(uint32_t layer) {
  return absl::UnimplementedError(absl::StrCat("layer ", layer, ": no latent cache"));
}

absl::Status RangePort::ShareLatents(uint32_t layer) {
  return absl::UnimplementedError(absl::StrCat("layer ", layer, ": no latent cache"));
}

absl::Status RangePort::TaskDone(uint32_t layer) {
  if (pass_.flag->aborted()) return absl::CancelledError("aborted");
  if (on_task_done_) on_task_done_(layer + 1);
  return absl::OkStatus();
}

}  // namespace deltafill::worker
