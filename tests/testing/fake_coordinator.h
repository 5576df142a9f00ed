// The other end of WorkerService.Attach, driven by a test.
#ifndef DELTAFILL_TESTS_TESTING_FAKE_COORDINATOR_H_
#define DELTAFILL_TESTS_TESTING_FAKE_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace grpc {
class Channel;
}
namespace deltafill::v1 {
class WorkerCommand;
class WorkerEvent;
}  // namespace deltafill::v1

namespace deltafill::test {

// Numbers workers 0, 1, … in the order in which they attach, over all sessions. Thread-safe.
class FakeCoordinator {
 public:
  // Serves on `port` of loopback (0: any), and in process.
  explicit FakeCoordinator(int port = 0, uint32_t heartbeat_ms = 20);
  ~FakeCoordinator();

  int port() const;
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Refuses attachments with FAILED_PRECONDITION from now on.
  void Refuse();

  // Waits for the attachment; false after ten seconds.
  bool WaitAttached(uint32_t worker);
  // The number that a worker of this name got last, once it has attached; -1 after ten seconds.
  int NumberOf(const std::string& name);
  bool Send(uint32_t worker, const v1::WorkerCommand& command);

  // The first event, from any worker and not taken yet, that matches: taken. False after ten
  // seconds.
  using Matches = std::function<bool(uint32_t worker, const v1::WorkerEvent& event)>;
  bool Take(const Matches& matches, v1::WorkerEvent* event);

  // Ends the worker's stream from this side.
  void Drop(uint32_t worker);
  // True once the worker's stream has ended; false after ten seconds.
  bool WaitGone(uint32_t worker);

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_FAKE_COORDINATOR_H_
