// Device links between the memories of fake devices, or any memory of the host's: for the
// exchange's protocol, and for what happens when links do not open, break or hang.
#ifndef DELTAFILL_TESTS_TESTING_FAKE_DEVICE_LINK_H_
#define DELTAFILL_TESTS_TESTING_FAKE_DEVICE_LINK_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "worker/exchange/device_link.h"

namespace deltafill::test {

// What a card does wrong. Changed by tests at any time.
struct CardFaults {
  bool open_fails = false;
  bool open_hangs = false;           // until the timeout or `stop`
  int transfers_until_failure = -1;  // the next but so many Send or Receive fails; -1: none
  bool transfers_fail = false;       // all of them
  bool receive_hangs = false;        // until `stop` or transfer_timeout
  std::chrono::milliseconds receive_delay{0};
  std::chrono::milliseconds transfer_timeout{10'000};
};

// Joins the links of its cards. Thread-safe. As with NCCL the bytes are read from the sender's
// memory when they are received: sanitizers see whether it lived long enough.
class CardSwitch : public std::enable_shared_from_this<CardSwitch> {
 public:
  std::shared_ptr<worker::DeviceTransport> NewCard(const std::string& name);

  void SetFaults(const std::string& card, const CardFaults& faults);
  int links_alive() const;   // ends
  int links_opened() const;  // ends, ever
  int transfers() const;     // received
  int ids_made() const;      // of links, opened or not

 private:
  friend class FakeLink;
  friend class FakeTransport;

  struct Sent {
    const std::byte* from;
    size_t bytes;
  };
  struct Path {
    bool opened[2] = {false, false};
    std::deque<Sent> sent;
  };

  // With the mutex held, as all below.
  bool CountDown(const std::string& card);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::map<std::string, CardFaults> faults_;
  std::map<worker::DeviceLinkId, Path> paths_;
  uint64_t ids_ = 0;
  int links_alive_ = 0;
  int links_opened_ = 0;
  int transfers_ = 0;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_FAKE_DEVICE_LINK_H_
