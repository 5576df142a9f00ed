#include "tests/coordinator/front_fixture.h"

#include "coordinator/front/handle.h"
#include "tests/statestore/store_fixture.h"

namespace deltafill::coordinator {

void FrontTest::SetUp() {
  bytes_ = NewMemoryEngine();
  EngineStoreOptions options;
  options.sweep_interval = std::chrono::milliseconds(0);
  options.log = [](const std::string&) {};
  auto store = EngineStore::Open(std::make_unique<testing::FaultyEngine>(bytes_), options);
  ASSERT_TRUE(store.ok()) << store.status();
  store_ = *std::move(store);
  engine_ = std::make_unique<FakeEngine>(*store_);
  auto server = StartFrontServer({"127.0.0.1:0", nullptr}, *store_, *engine_);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  stub_ = v1::PrefillService::NewStub(
      grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments));
}

void FrontTest::TearDown() {
  if (server_ != nullptr) server_->Stop(std::chrono::seconds(5));
  server_.reset();
  engine_.reset();
  store_.reset();
}

std::vector<uint32_t> FrontTest::Tokens(size_t count, uint32_t seed) {
  std::vector<uint32_t> tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<uint32_t>((i * 7919 + seed * 104729 + i * i % 13) % 256));
  }
  return tokens;
}

v1::PrefillRequest FrontTest::PrefillOf(const std::vector<uint32_t>& tokens,
                                        std::vector<uint64_t> checkpoint_at) {
  v1::PrefillRequest request;
  request.mutable_prompt()->mutable_tokens()->mutable_ids()->Add(tokens.begin(), tokens.end());
  request.mutable_checkpoint_at()->Add(checkpoint_at.begin(), checkpoint_at.end());
  request.set_return_logits(true);
  return request;
}

std::unique_ptr<grpc::ClientContext> FrontTest::By(const std::string& tenant) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  if (tenant != "default") context->AddMetadata("deltafill-tenant", tenant);
  return context;
}

namespace {

template <typename Stream>
PrefillResult ReadEvents(Stream& stream) {
  PrefillResult result;
  v1::PrefillEvent event;
  while (stream.Read(&event)) {
    if (event.has_accepted()) result.accepted = event.accepted();
    if (event.has_progress()) result.progress.push_back(event.progress());
    if (event.has_checkpoint()) result.checkpoints.push_back(event.checkpoint());
    if (event.has_logits()) result.logits = event.logits().values();
    if (event.has_done()) result.done = event.done();
    result.order.push_back(" apcld"[event.event_case()]);
  }
  result.status = stream.Finish();
  return result;
}

}  // namespace

PrefillResult FrontTest::Prefill(const v1::PrefillRequest& request, const std::string& tenant) {
  const auto context = By(tenant);
  return ReadEvents(*stub_->Prefill(context.get(), request));
}

PrefillResult FrontTest::PrefillInPieces(const std::vector<v1::PrefillRequest>& pieces,
                                         const std::string& tenant) {
  const auto context = By(tenant);
  const auto stream = stub_->PrefillInPieces(context.get());
  for (const v1::PrefillRequest& piece : pieces) {
    if (!stream->Write(piece)) break;
  }
  stream->WritesDone();
  return ReadEvents(*stream);
}

DecodeResult FrontTest::Decode(const v1::DecodeRequest& request, const std::string& tenant) {
  DecodeResult result;
  const auto context = By(tenant);
  const auto stream = stub_->Decode(context.get(), request);
  v1::DecodeEvent event;
  while (stream->Read(&event)) {
    if (event.has_started()) result.started = event.started();
    if (event.has_token()) result.ids.push_back(event.token().id());
    if (event.has_token()) result.text += event.token().text();
    if (event.has_done()) result.done = event.done();
  }
  result.status = stream->Finish();
  return result;
}

FetchResult FrontTest::Fetch(const v1::FetchStateRequest& request, const std::string& tenant) {
  FetchResult result;
  const auto context = By(tenant);
  const auto stream = stub_->FetchState(context.get(), request);
  v1::FetchStateEvent event;
  std::string bytes;
  while (stream->Read(&event)) {
    if (event.has_start()) result.start = event.start();
    if (event.has_end()) result.end = event.end();
    bytes += event.chunk();
  }
  result.status = stream->Finish();
  size_t at = 0;
  for (const v1::TensorHeader& tensor : result.start.tensors()) {
    if (at + tensor.bytes() <= bytes.size()) {
      result.tensors[tensor.name()] = bytes.substr(at, tensor.bytes());
    }
    at += tensor.bytes();
  }
  if (result.status.ok()) {
    EXPECT_EQ(at, bytes.size());
  }
  return result;
}

v1::LookupResponse FrontTest::Lookup(const std::vector<uint32_t>& tokens,
                                     const std::string& tenant) {
  v1::LookupRequest request;
  request.mutable_prompt()->mutable_tokens()->mutable_ids()->Add(tokens.begin(), tokens.end());
  v1::LookupResponse response;
  const grpc::Status status = stub_->Lookup(By(tenant).get(), request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

grpc::Status FrontTest::Get(const std::string& state, const std::string& tenant, bool verify,
                            v1::StateDescription* description) {
  v1::GetStateRequest request;
  request.set_state(state);
  request.set_verify(verify);
  return stub_->GetState(By(tenant).get(), request, description);
}

void FrontTest::Damage(const std::string& state_name) {
  const auto ref = DecodeStateReference(state_name, "state");
  ASSERT_TRUE(ref.ok()) << ref.status();
  const auto manifest = store_->GetManifest("default", ref->state);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  testing::FlipLayerByte(bytes_.get(), manifest->parts.front().id, 1);
}

}  // namespace deltafill::coordinator
