// A worker without a model: attaches over a real stream and answers what it is given at once, or
// keeps it until told.
#ifndef DELTAFILL_TESTS_COORDINATOR_ATTACHED_WORKER_H_
#define DELTAFILL_TESTS_COORDINATOR_ATTACHED_WORKER_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "proto/worker.grpc.pb.h"

namespace deltafill::coordinator::test {

inline constexpr uint32_t kFakeVocabulary = 3;

v1::WorkerHello FakeHello(const std::string& name);

// Thread-safe.
class FakeAttachedWorker {
 public:
  FakeAttachedWorker(const std::shared_ptr<grpc::Channel>& channel, const v1::WorkerHello& hello,
                     bool answers);
  ~FakeAttachedWorker();

  // Waits for the welcome or the end of the stream. 0 if it was refused.
  uint32_t WaitForWelcome();
  // Waits until a command of this case has come; false after 10 s or when the stream has ended.
  bool WaitFor(v1::WorkerCommand::CommandCase command);
  std::vector<v1::WorkerCommand> commands() const;

  void Write(const v1::WorkerEvent& event);
  void Heartbeat(bool draining = false);
  // Ends the stream without a word, as a killed process does.
  void Kill();
  // Stops heartbeats.
  void FallSilent() { silent_ = true; }
  // The status that the stream ended with; waits for it.
  absl::Status Join();

 private:
  void Read();
  void Beat();
  void Answer(const v1::WorkerCommand& command);
  void AnswerRange(const v1::RunRange& run);

  const bool answers_;
  grpc::ClientContext context_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerEvent, v1::WorkerCommand>> stream_;
  std::mutex write_mutex_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::WorkerCommand> commands_;  // under mutex_
  bool ended_ = false;                       // under mutex_
  absl::Status status_;                      // under mutex_
  std::atomic<bool> silent_{false};
  std::thread reader_;
  std::thread heart_;
};

}  // namespace deltafill::coordinator::test

#endif  // DELTAFILL_TESTS_COORDINATOR_ATTACHED_WORKER_H_
