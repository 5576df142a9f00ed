#include "tests/coordinator/attached_worker.h"

#include <chrono>
#include <utility>

namespace deltafill::coordinator::test {

using std::chrono::milliseconds;
using std::chrono::seconds;

v1::WorkerHello FakeHello(const std::string& name) {
  v1::WorkerHello hello;
  hello.set_protocol(2);
  hello.set_name(name);
  hello.set_device("none");
  hello.set_range_tokens_max(1024);
  hello.set_decode_batch_max(16);
  v1::WorkerModel* model = hello.mutable_model();
  model->set_name("fake");
  model->set_fingerprint(std::string(32, '\7'));
  model->set_numerics("fake numerics");
  model->set_vocabulary(kFakeVocabulary);
  model->set_layers(2);
  model->set_state_bytes(100);
  v1::StatePartShape* shape = model->add_state_parts();
  shape->set_kind(1);
  for (uint32_t dim : {2u, 3u, 4u, 1u}) shape->add_shape(dim);
  shape->add_layers(0);
  shape->add_layers(1);
  hello.mutable_costs()->set_layer_token_s(1e-4);
  hello.mutable_costs()->set_handover_fraction(1.0);
  return hello;
}

FakeAttachedWorker::FakeAttachedWorker(const std::shared_ptr<grpc::Channel>& channel,
                                       const v1::WorkerHello& hello, bool answers)
    : answers_(answers),
      stub_(v1::WorkerService::NewStub(channel)),
      stream_(stub_->Attach(&context_)) {
  v1::WorkerEvent event;
  *event.mutable_hello() = hello;
  Write(event);
  reader_ = std::thread([this] { Read(); });
  heart_ = std::thread([this] { Beat(); });
}

FakeAttachedWorker::~FakeAttachedWorker() {
  Kill();
  reader_.join();
  heart_.join();
}

void FakeAttachedWorker::Write(const v1::WorkerEvent& event) {
  const std::lock_guard lock(write_mutex_);
  stream_->Write(event);
}

void FakeAttachedWorker::Heartbeat(bool draining) {
  v1::WorkerEvent event;
  event.mutable_heartbeat()->set_draining(draining);
  Write(event);
}

void FakeAttachedWorker::Kill() { context_.TryCancel(); }

void FakeAttachedWorker::Beat() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, milliseconds(50), [this] { return ended_; })) {
    if (silent_ || commands_.empty()) continue;
    lock.unlock();
    Heartbeat();
    lock.lock();
  }
}

void FakeAttachedWorker::Read() {
  v1::WorkerCommand command;
  while (stream_->Read(&command)) {
    {
      const std::lock_guard lock(mutex_);
      commands_.push_back(command);
    }
    changed_.notify_all();
    if (answers_) Answer(command);
  }
  const grpc::Status status = stream_->Finish();
  const std::lock_guard lock(mutex_);
  ended_ = true;
  status_ =
      absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  changed_.notify_all();
}

void FakeAttachedWorker::Answer(const v1::WorkerCommand& command) {
  if (command.has_run_range()) AnswerRange(command.run_range());
  if (command.has_run_decode()) {
    v1::WorkerEvent event;
    *event.mutable_decode_ready()->mutable_attempt() = command.run_decode().attempt();
    Write(event);
    for (uint32_t i = 0; i < command.run_decode().max_tokens(); ++i) {
      event.mutable_decode_tokens()->clear_tokens();
      v1::DecodeToken* token = event.mutable_decode_tokens()->add_tokens();
      *token->mutable_attempt() = command.run_decode().attempt();
      token->set_id(i);
      Write(event);
    }
    *event.mutable_decode_finished()->mutable_attempt() = command.run_decode().attempt();
    event.mutable_decode_finished()->set_finish_reason("length");
    Write(event);
  }
  if (command.has_drain()) {
    v1::WorkerEvent event;
    event.mutable_drained();
    Write(event);
    const std::lock_guard lock(write_mutex_);
    stream_->WritesDone();
  }
}

void FakeAttachedWorker::AnswerRange(const v1::RunRange& run) {
  for (uint32_t layer = 1; layer <= 2; ++layer) {
    v1::WorkerEvent event;
    *event.mutable_range_progress()->mutable_attempt() = run.attempt();
    event.mutable_range_progress()->set_range(run.range());
    event.mutable_range_progress()->set_layers_done(layer);
    Write(event);
  }
  for (const v1::BoundaryRequest& request : run.boundaries()) {
    v1::WorkerEvent event;
    v1::BoundaryStored* stored = event.mutable_boundary_stored();
    *stored->mutable_attempt() = run.attempt();
    stored->set_boundary(request.boundary());
    v1::StoredPart* part = stored->add_parts();
    part->set_id(std::string(32, static_cast<char>(1 + request.boundary() / 64 % 100)));
    part->set_kind(1);
    part->set_bytes(10);
    part->set_lease_id(request.boundary());
    Write(event);
  }
  v1::WorkerEvent event;
  if (run.last_logits()) {
    *event.mutable_last_logits()->mutable_attempt() = run.attempt();
    event.mutable_last_logits()->set_values(std::string(4 * kFakeVocabulary, '\0'));
    Write(event);
  }
  *event.mutable_range_done()->mutable_attempt() = run.attempt();
  event.mutable_range_done()->set_range(run.range());
  Write(event);
}

uint32_t FakeAttachedWorker::WaitForWelcome() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, seconds(10), [this] { return ended_ || !commands_.empty(); });
  return commands_.empty() ? 0 : commands_[0].welcome().worker();
}

bool FakeAttachedWorker::WaitFor(v1::WorkerCommand::CommandCase wanted) {
  std::unique_lock lock(mutex_);
  const auto has_come = [&] {
    for (const v1::WorkerCommand& command : commands_) {
      if (command.command_case() == wanted) return true;
    }
    return false;
  };
  changed_.wait_for(lock, seconds(10), [&] { return ended_ || has_come(); });
  return has_come();
}

std::vector<v1::WorkerCommand> FakeAttachedWorker::commands() const {
  const std::lock_guard lock(mutex_);
  return commands_;
}

absl::Status FakeAttachedWorker::Join() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, seconds(10), [this] { return ended_; })) {
    return absl::DeadlineExceededError("the stream has not ended");
  }
  return status_;
}

}  // namespace deltafill::coordinator::test
