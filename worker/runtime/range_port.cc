#include "worker/runtime/range_port.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/latent_rows.h"

namespace deltafill::worker {

RangePort::RangePort(const PortLane& lane, RangePass pass,
                     std::function<void(uint32_t layers_done)> on_task_done)
    : lane_(lane), pass_(std::move(pass)), on_task_done_(std::move(on_task_done)) {}

absl::StatusOr<const StateEntry*> RangePort::Entry(uint32_t layer, PartKind kind) const {
  const StateEntry* entry = lane_.layout->Find(layer, kind);
  if (entry != nullptr) return entry;
  return absl::InternalError(absl::StrCat("layer ", layer, " asked for a state it has not"));
}

absl::Status RangePort::Seen(absl::Status status) {
  peer_lost_ = peer_lost_ || absl::IsUnavailable(status);
  return status;
}

absl::StatusOr<const void*> RangePort::Await(uint32_t layer, PartKind kind) {
  if (pass_.source == RangePass::Source::kZero) return nullptr;
  DELTAFILL_TRY_ASSIGN(entry, Entry(layer, kind));
  std::byte* const incoming = pass_.incoming->at(*entry);
  const std::byte* on_host = nullptr;
  if (pass_.source == RangePass::Source::kStored) {
    DELTAFILL_TRY_ASSIGN(bytes, pass_.stored->Await(*entry));
    if (!on_device()) return bytes;
    on_host = bytes;
  }
  if (pass_.source == RangePass::Source::kPeer) {
    DELTAFILL_TRY_ASSIGN(received, AwaitPeer(layer, kind));
    const bool is_on_host = received.on_host();
    DELTAFILL_TRY_ASSIGN(bytes, Keep(std::move(received)));
    if (!is_on_host) return bytes;
    on_host = bytes;
  }
  if (on_host != nullptr) {
    DELTAFILL_TRY(lane_.operators->CopyFromHost(incoming, on_host, entry->bytes));
  }
  return incoming;
}

void* RangePort::Outgoing(uint32_t layer, PartKind kind) {
  const StateEntry* entry = lane_.layout->Find(layer, kind);
  if (pass_.outgoing == nullptr || entry == nullptr) return nullptr;
  return pass_.outgoing->at(*entry);
}

absl::Status RangePort::HandOn(uint32_t layer, PartKind kind) {
  if (pass_.next == nullptr) return absl::OkStatus();
  if (pass_.flag->aborted()) return absl::CancelledError("aborted");
  DELTAFILL_TRY_ASSIGN(entry, Entry(layer, kind));
  if (pass_.outgoing == nullptr) {
    return absl::InternalError(absl::StrCat("layer ", layer, " handed on a state it has not"));
  }
  return PublishToNext(layer, kind, pass_.outgoing->at(*entry), entry->bytes, nullptr);
}

absl::StatusOr<ReceivedState> RangePort::AwaitPeer(uint32_t layer, PartKind kind) {
  const auto before = std::chrono::steady_clock::now();
  absl::StatusOr<ReceivedState> received =
      lane_.exchange->Await({pass_.attempt, pass_.range, layer, kind});
  wait_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  return received;
}

absl::StatusOr<const std::byte*> RangePort::Keep(ReceivedState received) {
  if (received.on_host() && on_device()) {
    DELTAFILL_TRY_ASSIGN(staged, lane_.host_buffers->Acquire(received.bytes()));
    std::memcpy(staged.get(), received.data(), received.bytes());
    staged_.push_back(std::move(staged));
    return staged_.back().get();
  }
  kept_.push_back(std::move(received));
  return kept_.back().data();
}

absl::Status RangePort::PublishToNext(uint32_t layer, PartKind kind, const std::byte* bytes,
                                      size_t count, std::shared_ptr<const void> owner) {
  const BoundaryAddress address{pass_.attempt, pass_.range + 1, layer, kind};
  const StateView view{bytes, count, !on_device()};
  if (!on_device()) return Seen(lane_.exchange->Publish(address, view, {pass_.next, 1}));
  DELTAFILL_TRY(Seen(lane_.hand_over->status()));
  std::unique_ptr<kernels::LanePoint> written;
  DELTAFILL_TRY(lane_.operators->Mark(&written));
  lane_.hand_over->Push(
      {pass_.flag, std::move(written), address, view, *pass_.next, std::move(owner)});
  return absl::OkStatus();
}

void* RangePort::Capture(int capture, uint32_t layer, PartKind kind) {
  const StateEntry* entry = lane_.layout->Find(layer, kind);
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
  if (pass_.next == nullptr || pass_.next_holds >= pass_.first_token + pass_.token_count) {
    return absl::OkStatus();
  }
  return PublishLatents(layer);
}

absl::Status RangePort::PublishLatents(uint32_t layer) {
  const uint64_t end = pass_.first_token + pass_.token_count;
  const size_t bytes = (end - pass_.next_holds) * lane_.layout->latents.RowBytes();
  PooledBuffer rows;
  if (on_device()) {
    DELTAFILL_TRY_ASSIGN(buffer, lane_.device_buffers->Acquire(bytes));
    rows = std::move(buffer);
    // Once it is given back this lane alone gets it again, and writes in order.
  } else {
    auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    rows = PooledBuffer(memory, memory->data());
  }
  DELTAFILL_TRY(
      GatherLatents(*lane_.operators, *pass_.latents, layer, pass_.next_holds, end, rows.get()));
  const std::byte* const start = rows.get();
  return PublishToNext(layer, PartKind::kLatent, start, bytes, std::move(rows));
}

absl::Status RangePort::AwaitEarlierLatents(uint32_t layer) {
  DELTAFILL_TRY_ASSIGN(received, AwaitPeer(layer, PartKind::kLatent));
  const uint64_t rows = pass_.first_token - pass_.held;
  if (received.bytes() != rows * lane_.layout->latents.RowBytes()) {
    return absl::InternalError(absl::StrCat("layer ", layer, ": the previous range's worker sent ",
                                            received.bytes(),
                                            " bytes of latents, but those of tokens [", pass_.held,
                                            ", ", pass_.first_token, ") were missing"));
  }
  const bool from_host = received.on_host();
  DELTAFILL_TRY_ASSIGN(bytes, Keep(std::move(received)));
  return ScatterLatents(*lane_.operators, bytes, from_host, layer, pass_.held, pass_.first_token,
                        *pass_.latents);
}

absl::Status RangePort::TaskDone(uint32_t layer) {
  if (pass_.flag->aborted()) return absl::CancelledError("aborted");
  uint32_t layers_done = layer + 1;
  if (on_device()) {
    if (pass_.next != nullptr) DELTAFILL_TRY(Seen(lane_.hand_over->status()));
    std::unique_ptr<kernels::LanePoint>& task = tasks_[layer % tasks_.size()];
    if (task != nullptr) DELTAFILL_TRY(task->Wait());
    DELTAFILL_TRY(lane_.operators->Mark(&task));
    layers_done -= std::min<uint32_t>(layers_done, tasks_.size());
  }
  if (on_task_done_ && layers_done > 0) on_task_done_(layers_done);
  return absl::OkStatus();
}

absl::Status RangePort::Finish() {
  absl::Status status = FromOperator(lane_.operators->Synchronize());
  if (on_device() && pass_.next != nullptr) status.Update(Seen(lane_.hand_over->Drain()));
  kept_.clear();
  staged_.clear();
  return status;
}

}  // namespace deltafill::worker
