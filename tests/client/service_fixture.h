// A whole service in one process: front, scheduler and workers, with the calls of FrontTest.
#ifndef DELTAFILL_TESTS_CLIENT_SERVICE_FIXTURE_H_
#define DELTAFILL_TESTS_CLIENT_SERVICE_FIXTURE_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/front/front_server.h"
#include "coordinator/workers/scheduling_service.h"
#include "tests/coordinator/front_fixture.h"
#include "worker/runtime/worker.h"

namespace deltafill::coordinator {

class ServiceTest : public FrontTest {
 protected:
  // Over store_, which the test has made.
  void StartService(const SchedulingOptions& options) {
    scheduling_ = *StartScheduling(options, store_.get());
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kWorkerMessageBytesMax);
    builder.RegisterService(scheduling_->worker_service());
    internal_ = builder.BuildAndStart();
    server_ = *StartFrontServer({"127.0.0.1:0", nullptr}, *store_, *scheduling_->engine());
    stub_ = v1::PrefillService::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }

  void TearDown() override {
    server_->Stop(std::chrono::seconds(5));
    scheduling_->Stop();
    workers_.clear();
    internal_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    internal_.reset();
    scheduling_.reset();
    store_.reset();
  }

  // Of the model "toy"; what else the setup says is the test's. Returns once it is attached.
  void AddWorker(int number, std::shared_ptr<worker::Model> model, worker::WorkerSetup setup) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kWorkerMessageBytesMax);
    setup.name = "worker-" + std::to_string(number);
    setup.served = {std::move(model), "toy", {}};
    setup.store = store_.get();
    setup.coordinator = internal_->InProcessChannel(arguments);
    setup.range_tokens_max = 1024;
    setup.costs = worker::CostConstants{0.0, 1e-5, 0.0, 0.5, 0.0};
    workers_.push_back(*worker::Worker::Start(std::move(setup)));
    while (!workers_.back()->attached()) std::this_thread::yield();
  }

  static v1::PrefillRequest Whole(const std::vector<uint32_t>& tokens,
                                  std::vector<uint64_t> checkpoint_at = {}) {
    v1::PrefillRequest request = PrefillOf(tokens, std::move(checkpoint_at));
    request.set_schedule(v1::SCHEDULE_WAVEFRONT);
    return request;
  }
  static std::string BytesOf(const std::vector<float>& logits) {
    return {reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float)};
  }

  std::unique_ptr<SchedulingService> scheduling_;
  std::unique_ptr<grpc::Server> internal_;
  std::vector<std::unique_ptr<worker::Worker>> workers_;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_TESTS_CLIENT_SERVICE_FIXTURE_H_
