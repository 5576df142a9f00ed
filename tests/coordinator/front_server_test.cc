// The server itself: addresses, credentials, health, reflection, message sizes.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "coordinator/front/limits.h"
#include "tests/coordinator/front_fixture.h"

namespace deltafill::coordinator {
namespace {

constexpr char kAlphaHash[] =
    "a336d9b1d8b8647875238537ca5087b0ea335afd2032936aecdffc3e4b13f720";  // of alpha-token

class FrontServerTest : public FrontTest {
 protected:
  std::shared_ptr<grpc::Channel> Channel() const {
    return grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  }
};

grpc::ByteBuffer Buffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

std::string Bytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Valid() || !buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

TEST_F(FrontServerTest, AddressesThatAreRefused) {
  const auto open = StartFrontServer({"0.0.0.0:0", nullptr}, *store_, *engine_);
  EXPECT_EQ(open.status().code(), absl::StatusCode::kFailedPrecondition);
  const auto taken = StartFrontServer({server_->address(), nullptr}, *store_, *engine_);
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kUnavailable) << taken.status();
}

TEST_F(FrontServerTest, CredentialsDecideTheTenant) {
  auto resolver = NewCredentialsResolver(std::string("alpha ") + kAlphaHash + "\n");
  ASSERT_TRUE(resolver.ok());
  server_->Stop(std::chrono::seconds(1));
  auto server = StartFrontServer({"0.0.0.0:0", *std::move(resolver)}, *store_, *engine_);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  const std::string port = server_->address().substr(server_->address().rfind(':'));
  stub_ = v1::PrefillService::NewStub(
      grpc::CreateChannel("127.0.0.1" + port, grpc::InsecureChannelCredentials()));
  v1::ServerInfo served;
  EXPECT_EQ(stub_->GetServerInfo(By("alpha").get(), {}, &served).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  const auto context = By("default");
  context->AddMetadata("authorization", "Bearer alpha-token");
  const auto stream = stub_->Prefill(context.get(), PrefillOf(Tokens(100)));
  v1::PrefillEvent event;
  while (stream->Read(&event)) {
  }
  ASSERT_TRUE(stream->Finish().ok());
  EXPECT_EQ(store_->List("alpha", "", 10)->manifests.size(), 1u);
  EXPECT_EQ(store_->List("default", "", 10)->manifests.size(), 0u);
}

// The bytes of the health service's answer.
std::string HealthOf(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", Buffer(""), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, &response);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue.Next(&tag, &ok));
  EXPECT_TRUE(status.ok()) << status.error_message();
  return Bytes(response);
}

TEST_F(FrontServerTest, HealthIsServed) {
  EXPECT_EQ(HealthOf(Channel()), "\x08\x01") << "SERVING";
  server_->SetServing(false);
  EXPECT_EQ(HealthOf(Channel()), "\x08\x02") << "NOT_SERVING";
  server_->SetServing(true);
  EXPECT_EQ(HealthOf(Channel()), "\x08\x01") << "SERVING";
}

TEST_F(FrontServerTest, ReflectionNamesTheService) {
  grpc::GenericStub stub(Channel());
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(this);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  call->Write(Buffer(std::string("\x3a\x00", 2)), this);  // list_services
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  grpc::ByteBuffer response;
  call->Read(&response, this);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  EXPECT_NE(Bytes(response).find("deltafill.v1.PrefillService"), std::string::npos);
  call->WritesDone(this);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  grpc::Status status;
  call->Finish(&status, this);
  ASSERT_TRUE(queue.Next(&tag, &ok));
}

TEST_F(FrontServerTest, TheLargestPromptFitsAMessage) {
  const std::vector<uint32_t> tokens(kPromptTokensMax, kVocabulary - 1);
  EXPECT_EQ(Lookup(tokens).tokens(), kPromptTokensMax);
  v1::LookupRequest request;
  request.mutable_prompt()->mutable_tokens()->mutable_ids()->Resize(kPromptTokensMax + 1, 1);
  v1::LookupResponse response;
  const grpc::Status status = stub_->Lookup(By("default").get(), request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message().find("prompt.tokens: 4194305"), 0u) << status.error_message();
}

}  // namespace
}  // namespace deltafill::coordinator
