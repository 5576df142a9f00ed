// The service against clients that break the protocol, and the client against a service that is
// away.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "proto/statestore.grpc.pb.h"
#include "proto/status_conversion.h"
#include "statestore/service.h"
#include "tests/statestore/store_fixture.h"

namespace deltafill {
namespace {

using ::testing::HasSubstr;
using testing::SampleChain;
using testing::SamplePart;
using testing::StoreState;

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(0); }
  void TearDown() override { Stop(); }

  void Start(int port) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    stub_ = v1::StateStoreService::NewStub(
        grpc::CreateChannel(Address(), grpc::InsecureChannelCredentials()));
  }
  void Stop() {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  std::string Address() const { return "127.0.0.1:" + std::to_string(port_); }

  grpc::Status Put(const std::vector<v1::PutPartRequest>& requests) {
    grpc::ClientContext context;
    v1::PutPartResponse response;
    const auto writer = stub_->PutPart(&context, &response);
    for (const v1::PutPartRequest& request : requests) {
      if (!writer->Write(request)) break;
    }
    writer->WritesDone();
    return writer->Finish();
  }

  static v1::PutPartRequest StartOf(const SamplePart& part) {
    v1::PutPartRequest request;
    request.mutable_start()->set_tenant("acme");
    request.mutable_start()->set_part_header(*EncodePartHeader(part.header, part.Payloads()));
    return request;
  }
  static v1::PutPartRequest ChunkOf(const SamplePart& part, size_t bytes) {
    v1::PutPartRequest request;
    request.set_chunk(part.payload.data(), bytes);
    return request;
  }
  void ExpectRefusal(const std::vector<v1::PutPartRequest>& requests, grpc::StatusCode code,
                     const std::string& text) {
    const grpc::Status status = Put(requests);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(text));
    EXPECT_EQ(backing_->GetStats()->parts, 0u);
  }

  std::unique_ptr<StateStore> backing_ = NewMemoryStore({});
  std::unique_ptr<grpc::Service> service_ = NewStateStoreService(backing_.get());
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::StateStoreService::Stub> stub_;
};

TEST_F(ServiceTest, StreamsThatBreakTheProtocolStoreNothing) {
  const SamplePart part(2, {0, 1}, 100);
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  ExpectRefusal({}, invalid, "start");
  ExpectRefusal({ChunkOf(part, 100)}, invalid, "start");
  ExpectRefusal({StartOf(part)}, invalid, "0 bytes of the 800");
  ExpectRefusal({StartOf(part), ChunkOf(part, 799)}, invalid, "799 bytes");
  ExpectRefusal({StartOf(part), ChunkOf(part, 800), ChunkOf(part, 1)}, invalid, "more than");
  ExpectRefusal({StartOf(part), StartOf(part)}, invalid, "twice");
  const SamplePart large(2, {0}, 500'000);
  ExpectRefusal({StartOf(large), ChunkOf(large, (1 << 20) + 1)}, invalid, "limit 1048576");
  v1::PutPartRequest cut = StartOf(part);
  cut.mutable_start()->mutable_part_header()->pop_back();
  ExpectRefusal({cut, ChunkOf(part, 800)}, invalid, "part header");
  v1::PutPartRequest long_header = StartOf(part);
  long_header.mutable_start()->mutable_part_header()->push_back('x');
  ExpectRefusal({long_header, ChunkOf(part, 800)}, invalid, "after the header");
  v1::PutPartRequest flipped = ChunkOf(part, 800);
  (*flipped.mutable_chunk())[500] ^= 1;
  ExpectRefusal({StartOf(part), flipped}, grpc::StatusCode::DATA_LOSS, "layer 1");
  EXPECT_TRUE(Put({StartOf(part), ChunkOf(part, 800)}).ok());
}

TEST_F(ServiceTest, DigestsOfOtherSizesAreRefused) {
  grpc::ClientContext context;
  v1::StoredStateRequest request;
  request.set_tenant("acme");
  request.set_state("short");
  v1::StoredManifest response;
  const grpc::Status status = stub_->GetManifest(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("state: 5 bytes"));
  grpc::ClientContext find_context;
  v1::FindDeepestRequest find;
  find.set_tenant("acme");
  find.set_chain(std::string(33, 'x'));
  find.set_first_boundary(64);
  v1::FindDeepestResponse found;
  EXPECT_EQ(stub_->FindDeepest(&find_context, find, &found).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServiceTest, TheClientOutlivesARestartOfTheService) {
  const std::unique_ptr<StateStore> store = *ConnectStore(Address());
  const std::vector<StateId> chain = SampleChain(*store->GetTenantSalt("acme"), 1, 2);
  ASSERT_TRUE(StoreState(store.get(), "acme", chain[0], 64, {2}).ok());
  Stop();
  const auto start = std::chrono::steady_clock::now();
  const absl::Status away = store->GetManifest("acme", chain[0]).status();
  EXPECT_TRUE(absl::IsUnavailable(away)) << away;
  EXPECT_THAT(std::string(away.message()), HasSubstr("state store: "));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  const SamplePart part(2, {0}, 10);
  EXPECT_TRUE(absl::IsUnavailable(store->PutPart("acme", part.header, part.Payloads()).status()));
  EXPECT_TRUE(absl::IsUnavailable(store->GetPart(PartId{}, {}).status()));
  Start(port_);
  bool back = false;
  for (int tries = 0; tries < 10 && !back; ++tries) {
    back = store->GetManifest("acme", chain[0]).ok();
  }
  EXPECT_TRUE(back);
  EXPECT_TRUE(StoreState(store.get(), "acme", chain[1], 128, {3}).ok());
}

TEST_F(ServiceTest, StatusCodesSurviveTheWire) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "text");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
  }
  EXPECT_TRUE(FromGrpcStatus(ToGrpcStatus(absl::OkStatus())).ok());
  EXPECT_TRUE(absl::IsUnknown(FromGrpcStatus(grpc::Status(grpc::StatusCode(77), "odd"))));
}

}  // namespace
}  // namespace deltafill
