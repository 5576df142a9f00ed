// Moving bytes from one GPU's memory to another's: the payload path of an exchange link. The order,
// acknowledgement and loss of messages are the exchange's own affair.
//
// NCCL implements this in libdeltafill_nccl.so, which is opened at run time; tests do on the host.
#ifndef DELTAFILL_WORKER_EXCHANGE_DEVICE_LINK_H_
#define DELTAFILL_WORKER_EXCHANGE_DEVICE_LINK_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/status.h"

namespace deltafill::worker {

// Made by the sender, carried to the receiver, used once.
using DeviceLinkId = std::array<char, 128>;

enum class LinkEnd : uint8_t { kSender, kReceiver };

// Asked while a call waits; true ends it.
using StopAsked = std::function<bool()>;

// One end of a one-way path between two GPUs. Sends and receives match by their order. After an
// error every call fails: drop the link and open another. Used by one thread at a time.
class DeviceLink {
 public:
  // Gives up what is under way without waiting for the peer; memory that was given to Send or
  // Receive is not touched any more afterwards. The peer's calls do not notice by themselves.
  virtual ~DeviceLink() = default;

  // Issues the sending of device memory, which must be complete, and returns: perhaps before any
  // of it was read. It must stay as it is until the peer's Receive has returned.
  virtual kernels::Status Send(const void* from, size_t bytes, const StopAsked& stop) = 0;

  // Returns when exactly `bytes` have arrived in device memory. kInternal: an error of the device
  // or the peer, `stop`, or nothing came in time; the memory is not touched any more then.
  virtual kernels::Status Receive(void* to, size_t bytes, const StopAsked& stop) = 0;
};

// A GPU as an end of links. Thread-safe.
class DeviceTransport {
 public:
  virtual ~DeviceTransport() = default;

  // The card, by a name that no other card in the world has. A card has no link with itself.
  virtual const std::string& card() const = 0;

  // For people: "NCCL 2.28.3".
  virtual const std::string& description() const = 0;

  virtual kernels::Status NewLinkId(DeviceLinkId* out) = 0;

  // Both ends call this at about the same time. Returns a link over which bytes have passed, or
  // within `timeout` (and at `stop`) kInternal with the reason; nothing is left behind then.
  virtual kernels::Status Open(const DeviceLinkId& id, LinkEnd end,
                               std::chrono::milliseconds timeout, const StopAsked& stop,
                               std::unique_ptr<DeviceLink>* out) = 0;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_DEVICE_LINK_H_
