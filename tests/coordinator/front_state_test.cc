// FetchState, ListStates, GetState, DeleteState, PinState, UnpinState, GetServerInfo.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "coordinator/front/handle.h"
#include "tests/coordinator/front_fixture.h"

namespace deltafill::coordinator {
namespace {

class FrontStateTest : public FrontTest {
 protected:
  static v1::FetchStateRequest FetchOf(const std::string& state, const std::string& layout = "",
                                       bool end = false) {
    v1::FetchStateRequest request;
    request.set_state(state);
    request.set_layout(layout);
    if (end) request.set_position(v1::STATE_POSITION_END);
    return request;
  }

  static float FloatAt(const std::string& bytes, size_t i) {
    float value;
    std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
    return value;
  }

  static void ExpectCanonical(const FetchResult& fetched, uint64_t state) {
    for (uint32_t layer : {0u, 2u}) {
      const std::string name = "layers." + std::to_string(layer) + ".";
      const std::string& recurrent = fetched.tensors.at(name + "recurrent_state");
      ASSERT_EQ(recurrent.size(), kHeads * kValueDim * kKeyDim * sizeof(float));
      for (uint32_t i = 0; i < kHeads * kValueDim * kKeyDim; ++i) {
        EXPECT_EQ(FloatAt(recurrent, i), RecurrentValue(state, layer, i));
      }
      std::string conv;
      for (const char* part : {"q", "k", "v"})
        conv += fetched.tensors.at(name + "conv_state." + part);
      ASSERT_EQ(conv.size(), kConvChannels * 3 * sizeof(uint16_t));
      for (uint32_t i = 0; i < kConvChannels * 3; ++i) {
        uint16_t value;
        std::memcpy(&value, conv.data() + i * sizeof(value), sizeof(value));
        EXPECT_EQ(value, ConvValue(state, layer, i));
      }
    }
  }
};

TEST_F(FrontStateTest, FetchesTheBlock) {
  const std::vector<uint32_t> tokens = Tokens(150);
  const PrefillResult prefill = Prefill(PrefillOf(tokens));
  const FetchResult fetched = Fetch(FetchOf(prefill.done.state()));
  ASSERT_TRUE(fetched.status.ok()) << fetched.status.error_message();
  EXPECT_EQ(fetched.start.state().boundary(), 128u);
  EXPECT_EQ(fetched.start.state().tail_tokens(), 22u);
  EXPECT_EQ(fetched.end.tensors(), 8u);
  EXPECT_EQ(fetched.tensors.size(), 8u);
  ExpectCanonical(fetched, HashTokens(0, std::span(tokens).first(128)));
  const auto& metadata = fetched.start.metadata();
  EXPECT_EQ(metadata.at("layout"), "canonical");
  EXPECT_EQ(metadata.at("boundary"), "128");
  EXPECT_EQ(metadata.at("tokens"), "128");
  EXPECT_EQ(metadata.at("numerics"), "cpu.fake.1");
  const std::string state_hex = fetched.start.state().state_id().substr(4);
  for (const auto& [name, value] : metadata) EXPECT_EQ(value.find(state_hex), std::string::npos);
}

TEST_F(FrontStateTest, FetchesTheExactEnd) {
  const std::vector<uint32_t> tokens = Tokens(150);
  const PrefillResult prefill = Prefill(PrefillOf(tokens));
  const uint64_t parts_before = store_->GetStats()->parts;
  const FetchResult fetched = Fetch(FetchOf(prefill.done.state(), "canonical", true));
  ASSERT_TRUE(fetched.status.ok()) << fetched.status.error_message();
  ExpectCanonical(fetched, HashTokens(0, tokens));
  EXPECT_EQ(fetched.tensors.at("logits"), prefill.logits);
  EXPECT_EQ(fetched.start.metadata().at("tokens"), "150");
  EXPECT_EQ(fetched.end.tensors(), 9u);
  ASSERT_TRUE(store_->Sweep().ok());
  EXPECT_EQ(store_->GetStats()->parts, parts_before) << "the leases were given back";
}

TEST_F(FrontStateTest, FlaGivesWhatCanonicalGivesInItsShapes) {
  const PrefillResult prefill = Prefill(PrefillOf(Tokens(150)));
  const FetchResult plain = Fetch(FetchOf(prefill.done.state()));
  const FetchResult fla = Fetch(FetchOf(prefill.done.state(), "fla"));
  ASSERT_TRUE(fla.status.ok()) << fla.status.error_message();
  EXPECT_EQ(fla.tensors.at("layers.2.recurrent_state"),
            plain.tensors.at("layers.2.recurrent_state"));
  EXPECT_EQ(fla.tensors.at("layers.0.conv_state.k").size(), kHeads * kKeyDim * 4 * 2);
  EXPECT_EQ(fla.start.tensors(0).shape_size(), 4);
}

TEST_F(FrontStateTest, LayerAndHeadRanges) {
  const PrefillResult prefill = Prefill(PrefillOf(Tokens(150)));
  const FetchResult all = Fetch(FetchOf(prefill.done.state()));
  for (const bool end : {false, true}) {
    v1::FetchStateRequest request = FetchOf(prefill.done.state(), "", end);
    request.add_layers(2);
    request.set_head_begin(1);
    const FetchResult some = Fetch(request);
    ASSERT_TRUE(some.status.ok()) << some.status.error_message();
    EXPECT_EQ(some.tensors.size(), end ? 5u : 4u);
    EXPECT_EQ(some.tensors.count("layers.0.recurrent_state"), 0u);
    const std::string& head = some.tensors.at("layers.2.recurrent_state");
    EXPECT_EQ(head.size(), kValueDim * kKeyDim * sizeof(float));
    if (!end) {
      const std::string& whole = all.tensors.at("layers.2.recurrent_state");
      EXPECT_EQ(head, whole.substr(whole.size() / 2));
    }
  }
  v1::FetchStateRequest bad = FetchOf(prefill.done.state());
  bad.add_layers(1);
  EXPECT_EQ(Fetch(bad).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Fetch(bad).status.error_message().find("layers: 1"), 0u);
  bad = FetchOf(prefill.done.state());
  bad.set_head_end(kHeads + 1);
  EXPECT_EQ(Fetch(bad).status.error_message().find("head_end: 3"), 0u);
  EXPECT_EQ(Fetch(FetchOf(prefill.done.state(), "vllm")).status.error_message().find("layout"), 0u);
}

TEST_F(FrontStateTest, TheZeroStateIsZeros) {
  const std::vector<uint32_t> tokens = Tokens(10);
  const PrefillResult prefill = Prefill(PrefillOf(tokens));
  const FetchResult block = Fetch(FetchOf(prefill.done.state()));
  ASSERT_TRUE(block.status.ok()) << block.status.error_message();
  EXPECT_EQ(block.start.state().boundary(), 0u);
  EXPECT_EQ(block.tensors.size(), 8u);
  for (const auto& [name, bytes] : block.tensors) {
    EXPECT_EQ(bytes, std::string(bytes.size(), '\0')) << name;
  }
  const FetchResult end = Fetch(FetchOf(prefill.done.state(), "", true));
  ASSERT_TRUE(end.status.ok()) << end.status.error_message();
  ExpectCanonical(end, HashTokens(0, tokens));
}

TEST_F(FrontStateTest, TheEndNeedsATail) {
  const PrefillResult prefill = Prefill(PrefillOf(Tokens(150), {64}));
  const FetchResult fetched = Fetch(FetchOf(prefill.checkpoints.at(0).state(), "", true));
  EXPECT_EQ(fetched.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(fetched.status.error_message().find("state: has no tail"), 0u);
}

TEST_F(FrontStateTest, DamageIsDataLossAndNothingWrongIsSent) {
  const PrefillResult prefill = Prefill(PrefillOf(Tokens(150)));
  Damage(prefill.done.state());
  const FetchResult fetched = Fetch(FetchOf(prefill.done.state()));
  EXPECT_EQ(fetched.status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_TRUE(fetched.tensors.empty());
  v1::StateDescription description;
  const grpc::Status status = Get(prefill.done.state(), "default", true, &description);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_NE(status.error_message().find("is damaged"), std::string::npos) << status.error_message();
}

TEST_F(FrontStateTest, AnotherTenantsStateAndNoStateHaveTheSameText) {
  const PrefillResult mine = Prefill(PrefillOf(Tokens(150)), "alpha");
  PrefixRef absent;
  absent.state.bytes.fill(9);
  absent.tail = {1};
  const std::string handles[] = {mine.done.state(), EncodePrefixRef(absent),
                                 Prefill(PrefillOf(Tokens(10)), "alpha").done.state()};
  std::set<std::string> texts;
  for (const std::string& handle : handles) {
    v1::StateDescription description;
    v1::StateRequest request;
    request.set_state(handle);
    v1::DeleteStateResponse deleted;
    v1::DecodeRequest decode;
    decode.set_state(handle);
    decode.set_max_tokens(1);
    const bool zero = &handle == &handles[2];
    std::vector<grpc::Status> statuses = {
        Get(handle, "beta", false, &description), Fetch(FetchOf(handle), "beta").status,
        Fetch(FetchOf(handle, "", true), "beta").status, Decode(decode, "beta").status};
    if (!zero) {
      statuses.push_back(stub_->PinState(By("beta").get(), request, &description));
      statuses.push_back(stub_->UnpinState(By("beta").get(), request, &description));
      statuses.push_back(stub_->DeleteState(By("beta").get(), request, &deleted));
    }
    for (const grpc::Status& status : statuses) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << status.error_message();
      texts.insert(status.error_message());
    }
  }
  EXPECT_EQ(texts.size(), 1u);
  v1::StateDescription description;
  EXPECT_TRUE(Get(mine.done.state(), "alpha", true, &description).ok()) << "and it is still there";
}

TEST_F(FrontStateTest, AStateOfAnotherModelIsRefused) {
  const PrefillResult prefill = Prefill(PrefillOf(Tokens(150)));
  engine_->SetModels({FakeModel("other", 7)});
  const FetchResult end = Fetch(FetchOf(prefill.done.state(), "", true));
  EXPECT_EQ(end.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_NE(end.status.error_message().find("0707"), std::string::npos);
  EXPECT_NE(end.status.error_message().find("0101"), std::string::npos);
  EXPECT_TRUE(Fetch(FetchOf(prefill.done.state())).status.ok()) << "reading needs no worker";
}

TEST_F(FrontStateTest, ListsInPages) {
  ASSERT_TRUE(Prefill(PrefillOf(Tokens(500), {64, 128, 192, 256})).status.ok());
  ASSERT_TRUE(Prefill(PrefillOf(Tokens(500)), "other").status.ok());
  std::vector<std::string> ids;
  v1::ListStatesRequest request;
  request.set_limit(2);
  for (int page = 0; page < 5; ++page) {
    v1::ListStatesResponse response;
    ASSERT_TRUE(stub_->ListStates(By("default").get(), request, &response).ok());
    for (const auto& state : response.states()) ids.push_back(state.state_id());
    EXPECT_LE(response.states_size(), 2);
    request.set_page(response.next_page());
    if (response.next_page().empty()) break;
  }
  EXPECT_EQ(ids.size(), 5u);
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  for (const std::string& id : ids) {
    v1::StateDescription description;
    EXPECT_TRUE(Get(id, "default", true, &description).ok());
    EXPECT_EQ(description.state_id(), id);
  }
  v1::ListStatesResponse response;
  for (const char* page : {"x", "0g", "ABCD", "00"}) {
    request.set_page(page);
    const grpc::Status status = stub_->ListStates(By("default").get(), request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << page;
    EXPECT_EQ(status.error_message().find("page: not"), 0u) << status.error_message();
  }
  request.clear_page();
  request.set_limit(1001);
  EXPECT_EQ(stub_->ListStates(By("default").get(), request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(FrontStateTest, PinsUnpinsDeletes) {
  const PrefillResult prefill = Prefill(PrefillOf(Tokens(150)));
  v1::StateRequest request;
  request.set_state(prefill.done.state());
  for (int again = 0; again < 2; ++again) {
    v1::StateDescription description;
    ASSERT_TRUE(stub_->PinState(By("default").get(), request, &description).ok());
    EXPECT_TRUE(description.pinned());
  }
  v1::StateDescription description;
  ASSERT_TRUE(stub_->UnpinState(By("default").get(), request, &description).ok());
  EXPECT_FALSE(description.pinned());
  v1::DeleteStateResponse deleted;
  ASSERT_TRUE(stub_->DeleteState(By("default").get(), request, &deleted).ok());
  EXPECT_EQ(stub_->DeleteState(By("default").get(), request, &deleted).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Lookup(Tokens(150)).boundary(), 0u);
  request.set_state(Prefill(PrefillOf(Tokens(10))).done.state());
  EXPECT_EQ(stub_->DeleteState(By("default").get(), request, &deleted).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_state("df1.nonsense");
  EXPECT_EQ(stub_->PinState(By("default").get(), request, &description).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(FrontStateTest, ServerInfo) {
  ASSERT_TRUE(Prefill(PrefillOf(Tokens(150))).status.ok());
  v1::ServerInfo served;
  ASSERT_TRUE(stub_->GetServerInfo(By("default").get(), {}, &served).ok());
  EXPECT_FALSE(served.version().empty());
  ASSERT_EQ(served.models_size(), 1);
  EXPECT_EQ(served.models(0).name(), "tiny");
  EXPECT_EQ(served.models(0).tokenizer(), "bytes");
  ASSERT_EQ(served.workers_size(), 1);
  EXPECT_EQ(served.workers(0).status(), "ready");
  EXPECT_EQ(served.store().states(), 1u);
  EXPECT_GT(served.store().bytes(), 0u);
  EXPECT_EQ(served.prompts_queued(), 3u);
}

}  // namespace
}  // namespace deltafill::coordinator
