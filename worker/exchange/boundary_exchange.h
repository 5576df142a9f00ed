// Handing boundary states from the worker of one range to the worker of the next. One interface;
// transports: in process (memory), gRPC between processes, device links (NCCL) between GPUs beside
// it.
//
// Credits: a receiver reserves one prefix state a range when the coordinator gives it the range,
// and the coordinator bounds the ranges queued on a worker; a message is only sent to a worker that
// was given its range first. Messages carry their address (attempt, range, layer, kind), so they
// may arrive in any order and a slow prompt never blocks another.
#ifndef DELTAFILL_WORKER_EXCHANGE_BOUNDARY_EXCHANGE_H_
#define DELTAFILL_WORKER_EXCHANGE_BOUNDARY_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "statestore/part.h"

namespace deltafill::worker {

struct AttemptKey {
  uint64_t prompt = 0;
  uint32_t attempt = 0;
  friend auto operator<=>(const AttemptKey&, const AttemptKey&) = default;
};

// The boundary state of one layer that range `range` starts from. Latents: the rows before the
// range that its worker lacks.
struct BoundaryAddress {
  AttemptKey attempt;
  uint32_t range = 0;
  uint32_t layer = 0;
  PartKind kind = PartKind::kRecurrent;
  friend auto operator<=>(const BoundaryAddress&, const BoundaryAddress&) = default;
};

struct ExchangeTarget {
  uint32_t worker = 0;
  std::string address;  // host:port of its exchange; "" in process
};

// Bytes to hand on: complete, and unchanged until Publish has returned.
struct StateView {
  const std::byte* data = nullptr;
  size_t bytes = 0;
  bool on_host = true;  // false: memory of the publishing worker's backend
};

inline StateView OnHost(std::span<const std::byte> bytes) { return {bytes.data(), bytes.size()}; }

// Bytes that came in, together with what keeps their memory. Move-only.
class ReceivedState {
 public:
  ReceivedState() = default;
  // On the host.
  ReceivedState(std::vector<std::byte> bytes) {  // NOLINT(google-explicit-constructor)
    auto owner = std::make_shared<std::vector<std::byte>>(std::move(bytes));
    data_ = owner->data();
    bytes_ = owner->size();
    owner_ = std::move(owner);
  }
  // `data` lives as long as `owner`; not on_host: memory of the receiving worker's backend.
  ReceivedState(std::byte* data, size_t bytes, bool on_host, std::shared_ptr<const void> owner)
      : data_(data), bytes_(bytes), on_host_(on_host), owner_(std::move(owner)) {}
  ReceivedState(ReceivedState&&) = default;
  ReceivedState& operator=(ReceivedState&&) = default;
  ReceivedState(const ReceivedState&) = delete;
  ReceivedState& operator=(const ReceivedState&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool on_host() const { return on_host_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  bool on_host_ = true;
  std::shared_ptr<const void> owner_;
};

// Thread-safe.
class BoundaryExchange {
 public:
  virtual ~BoundaryExchange() = default;

  // Makes room for everything range `range` of an attempt will receive. Idempotent.
  // CANCELLED if the attempt was aborted or is not the newest of its prompt.
  virtual absl::Status Reserve(const AttemptKey& attempt, uint32_t range) = 0;

  // Hands the bytes on to every target; returns when they have been copied or sent, not when they
  // arrived. UNAVAILABLE naming the worker if a peer cannot be reached; CANCELLED if the attempt is
  // aborted while this waits.
  virtual absl::Status Publish(const BoundaryAddress& address, StateView view,
                               std::span<const ExchangeTarget> targets) = 0;

  // Blocks until the state is there and moves it out; each state can be taken once. CANCELLED if
  // the range is not reserved (any more): its attempt was aborted or a newer one is known.
  virtual absl::StatusOr<ReceivedState> Await(const BoundaryAddress& address) = 0;

  // Wakes waiters, frees what was received, and drops later messages of this and older attempts.
  virtual void Abort(const AttemptKey& attempt) = 0;

  // Forgets every attempt, as if the exchange were new: for a worker whose coordinator went away.
  virtual void AbortAll() = 0;

  // The range has ended: its reservation is given back.
  virtual void Release(const AttemptKey& attempt, uint32_t range) = 0;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_BOUNDARY_EXCHANGE_H_
