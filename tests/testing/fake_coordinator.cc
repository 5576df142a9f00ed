#include "tests/testing/fake_coordinator.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "proto/worker.grpc.pb.h"

namespace deltafill::test {
namespace {

constexpr std::chrono::seconds kPatience{10};
using Stream = grpc::ServerReaderWriter<v1::WorkerCommand, v1::WorkerEvent>;

struct Attachment {
  std::string name;
  Stream* stream = nullptr;  // nullptr: gone
  grpc::ServerContext* context = nullptr;
};

}  // namespace

struct FakeCoordinator::Core final : v1::WorkerService::Service {
  grpc::Status Attach(grpc::ServerContext* context, Stream* stream) override {
    v1::WorkerEvent event;
    if (!stream->Read(&event) || !event.has_hello()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "no hello"};
    }
    uint32_t worker = 0;
    {
      std::lock_guard lock(mutex);
      if (refusing) return {grpc::StatusCode::FAILED_PRECONDITION, "protocol: not this one"};
      worker = next_worker++;
      v1::WorkerCommand welcome;
      welcome.mutable_welcome()->set_worker(worker);
      welcome.mutable_welcome()->set_heartbeat_ms(heartbeat_ms);
      stream->Write(welcome);
      attachments[worker] = {event.hello().name(), stream, context};
      events.emplace_back(worker, event);
    }
    changed.notify_all();
    while (stream->Read(&event)) {
      std::lock_guard lock(mutex);
      events.emplace_back(worker, event);
      changed.notify_all();
    }
    std::lock_guard lock(mutex);
    attachments[worker].stream = nullptr;
    changed.notify_all();
    return grpc::Status::OK;
  }

  uint32_t heartbeat_ms = 20;
  int port = 0;
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  bool refusing = false;
  uint32_t next_worker = 0;
  std::map<uint32_t, Attachment> attachments;
  std::list<std::pair<uint32_t, v1::WorkerEvent>> events;

  std::unique_ptr<grpc::Server> server;
};

FakeCoordinator::FakeCoordinator(int port, uint32_t heartbeat_ms)
    : core_(std::make_unique<Core>()) {
  core_->heartbeat_ms = heartbeat_ms;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                           &core_->port);
  builder.RegisterService(core_.get());
  core_->server = builder.BuildAndStart();
}

FakeCoordinator::~FakeCoordinator() {
  if (core_->server != nullptr) core_->server->Shutdown(std::chrono::system_clock::now());
}

int FakeCoordinator::port() const { return core_->port; }

std::shared_ptr<grpc::Channel> FakeCoordinator::InProcessChannel() {
  return core_->server->InProcessChannel({});
}

void FakeCoordinator::Refuse() {
  std::lock_guard lock(core_->mutex);
  core_->refusing = true;
}

bool FakeCoordinator::WaitAttached(uint32_t worker) {
  std::unique_lock lock(core_->mutex);
  return core_->changed.wait_for(lock, kPatience,
                                 [&] { return core_->attachments.count(worker) > 0; });
}

int FakeCoordinator::NumberOf(const std::string& name) {
  std::unique_lock lock(core_->mutex);
  int number = -1;
  core_->changed.wait_for(lock, kPatience, [&] {
    for (const auto& [worker, attachment] : core_->attachments) {
      if (attachment.name == name) number = static_cast<int>(worker);
    }
    return number >= 0;
  });
  return number;
}

bool FakeCoordinator::Send(uint32_t worker, const v1::WorkerCommand& command) {
  std::lock_guard lock(core_->mutex);
  const auto found = core_->attachments.find(worker);
  return found != core_->attachments.end() && found->second.stream != nullptr &&
         found->second.stream->Write(command);
}

bool FakeCoordinator::Take(const Matches& matches, v1::WorkerEvent* event) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::unique_lock lock(core_->mutex);
  for (;;) {
    for (auto entry = core_->events.begin(); entry != core_->events.end(); ++entry) {
      if (!matches(entry->first, entry->second)) continue;
      *event = std::move(entry->second);
      core_->events.erase(entry);
      return true;
    }
    if (core_->changed.wait_until(lock, deadline) == std::cv_status::timeout) return false;
  }
}

void FakeCoordinator::Drop(uint32_t worker) {
  std::lock_guard lock(core_->mutex);
  const auto found = core_->attachments.find(worker);
  if (found != core_->attachments.end() && found->second.stream != nullptr) {
    found->second.context->TryCancel();
  }
}

bool FakeCoordinator::WaitGone(uint32_t worker) {
  std::unique_lock lock(core_->mutex);
  return core_->changed.wait_for(lock, kPatience, [&] {
    const auto found = core_->attachments.find(worker);
    return found != core_->attachments.end() && found->second.stream == nullptr;
  });
}

}  // namespace deltafill::test
