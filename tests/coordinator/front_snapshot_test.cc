// SnapshotService over a fake engine and a store in memory.
#include <gmock/gmock.h>

#include "proto/snapshot.grpc.pb.h"
#include "tests/coordinator/front_fixture.h"

namespace deltafill::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kCommitA[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
constexpr char kCommitB[] = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

class FrontSnapshotTest : public FrontTest {
 protected:
  void SetUp() override {
    FrontTest::SetUp();
    snapshots_ = v1::SnapshotService::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }

  // Tokens of files of 640 tokens each; file i begins like every other one with its seed.
  struct Upload {
    v1::PutSnapshotStart start;
    v1::SnapshotSegments segments;
    std::vector<uint32_t> tokens;
  };
  static Upload Files(const std::vector<uint32_t>& seeds, uint64_t replaced = 0,
                      const std::string& commit = "") {
    Upload upload;
    upload.start.set_name("app");
    upload.start.set_replaced_revision(replaced);
    upload.start.set_commit(commit);
    upload.start.set_versions_max(2);
    upload.start.set_header_tokens(10);
    upload.tokens = Tokens(10, 99);
    for (size_t i = 0; i < seeds.size(); ++i) {
      v1::SnapshotSegment* segment = upload.segments.add_segments();
      segment->set_path("file-" + std::to_string(i));
      segment->set_content_hash(std::to_string(seeds[i]));
      segment->set_tokens(640);
      segment->set_first_change(0.1);
      const std::vector<uint32_t> tokens = Tokens(640, seeds[i]);
      upload.tokens.insert(upload.tokens.end(), tokens.begin(), tokens.end());
    }
    return upload;
  }

  struct Result {
    grpc::Status status;
    v1::PutSnapshotDone done;
  };
  Result Put(const Upload& upload, const std::string& tenant = "default") {
    Result result;
    const auto context = By(tenant);
    const auto stream = snapshots_->PutSnapshot(context.get());
    v1::PutSnapshotRequest request;
    *request.mutable_start() = upload.start;
    stream->Write(request);
    *request.mutable_segments() = upload.segments;
    stream->Write(request);
    for (size_t at = 0; at < upload.tokens.size(); at += 1000) {
      const size_t count = std::min<size_t>(1000, upload.tokens.size() - at);
      request.set_tokens(upload.tokens.data() + at, count * sizeof(uint32_t));
      stream->Write(request);
    }
    stream->WritesDone();
    v1::PutSnapshotEvent event;
    while (stream->Read(&event)) {
      if (event.has_done()) result.done = event.done();
    }
    result.status = stream->Finish();
    return result;
  }
  grpc::Status Get(const std::string& name, v1::SnapshotDescription* snapshot,
                   const std::string& tenant = "default") {
    v1::GetSnapshotRequest request;
    request.set_name(name);
    request.set_with_segments(true);
    return snapshots_->GetSnapshot(By(tenant).get(), request, snapshot);
  }
  grpc::Status Delete(const std::string& name, v1::DeleteSnapshotResponse* response) {
    v1::DeleteSnapshotRequest request;
    request.set_name(name);
    return snapshots_->DeleteSnapshot(By("default").get(), request, response);
  }
  std::vector<std::string> Names(const std::string& tenant = "default") {
    v1::ListSnapshotsResponse response;
    EXPECT_TRUE(
        snapshots_->ListSnapshots(By(tenant).get(), v1::ListSnapshotsRequest(), &response).ok());
    std::vector<std::string> names;
    for (const auto& snapshot : response.snapshots()) names.push_back(snapshot.name());
    return names;
  }

  std::unique_ptr<v1::SnapshotService::Stub> snapshots_;
};

TEST_F(FrontSnapshotTest, AnUpdateResumesBeforeTheFirstChange) {
  const Result created = Put(Files({1, 2, 3, 4}));
  ASSERT_TRUE(created.status.ok()) << created.status.error_message();
  EXPECT_EQ(created.done.reused_tokens(), 0u);
  EXPECT_EQ(created.done.snapshot().summary().tokens(), 2570u);
  EXPECT_EQ(created.done.snapshot().boundary(), 2560u);
  // Files begin at 10, 650, 1290, 1930.
  std::vector<uint64_t> boundaries;
  for (const auto& checkpoint : created.done.snapshot().checkpoints()) {
    boundaries.push_back(checkpoint.boundary());
  }
  EXPECT_THAT(boundaries, ElementsAre(640, 1280, 1920, 2560));

  const Result updated = Put(Files({1, 2, 3, 5}, created.done.snapshot().revision()));
  ASSERT_TRUE(updated.status.ok()) << updated.status.error_message();
  EXPECT_EQ(updated.done.reused_tokens(), 1920u);
  EXPECT_GE(updated.done.recomputed_tokens(), 640u);
  EXPECT_LE(updated.done.recomputed_tokens(), 650u);

  // The same handle as any prefill of the tokens gives.
  const PrefillResult fresh = Prefill(PrefillOf(Files({1, 2, 3, 5}).tokens));
  EXPECT_EQ(updated.done.snapshot().state(), fresh.done.state());
  v1::SnapshotDescription shown;
  ASSERT_TRUE(Get("app", &shown).ok());
  EXPECT_EQ(shown.state(), fresh.done.state());
  EXPECT_EQ(shown.segments_size(), 4);
  EXPECT_EQ(shown.segments(3).content_hash(), "5");
  EXPECT_EQ(shown.resumed_at(), 1920u);
  EXPECT_EQ(store_->GetStats()->states, 4u) << "the old end is gone, and nothing else";
}

TEST_F(FrontSnapshotTest, NothingChangedComputesNothing) {
  const Result created = Put(Files({1, 2}));
  const Result same = Put(Files({1, 2}, created.done.snapshot().revision()));
  ASSERT_TRUE(same.status.ok());
  EXPECT_EQ(same.done.recomputed_tokens(), 0u);
  EXPECT_EQ(same.done.reused_tokens(), 1280u);
  EXPECT_EQ(same.done.snapshot().state(), created.done.snapshot().state());
  EXPECT_EQ(engine_->prefills().size(), 1u);
}

TEST_F(FrontSnapshotTest, NamesAreTakenOnceAndRevisionsReplacedOnce) {
  const uint64_t revision = Put(Files({1})).done.snapshot().revision();
  EXPECT_EQ(Put(Files({2})).status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_TRUE(Put(Files({2}, revision)).status.ok());
  EXPECT_EQ(Put(Files({3}, revision)).status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_TRUE(Put(Files({1}), "other").status.ok()) << "another tenant's names are others";
  EXPECT_THAT(Names("other"), ElementsAre("app"));
  v1::SnapshotDescription shown;
  EXPECT_EQ(Get("app", &shown, "third").error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(FrontSnapshotTest, VersionsHoldWhatTheirCommitHad) {
  const Result first = Put(Files({1, 2, 3}, 0, kCommitA));
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  const Result second = Put(Files({1, 2, 7}, first.done.snapshot().revision(), kCommitB));
  ASSERT_TRUE(second.status.ok());
  v1::SnapshotDescription shown;
  ASSERT_TRUE(Get("app@aaaaaaa", &shown).ok());
  EXPECT_EQ(shown.state(), first.done.snapshot().state());
  EXPECT_EQ(shown.damage(), "");
  EXPECT_THAT(Names(),
              ElementsAre("app", std::string("app@") + kCommitA, std::string("app@") + kCommitB));
  // Two files are common: their checkpoint, and an end each.
  EXPECT_EQ(store_->GetStats()->states, 4u);

  std::string third(40, 'c');
  ASSERT_TRUE(Put(Files({1, 2, 8}, second.done.snapshot().revision(), third)).status.ok());
  EXPECT_THAT(Names(), ElementsAre("app", std::string("app@") + kCommitB, "app@" + third))
      << "the oldest version went";
  EXPECT_EQ(Get("app@aaaaaaa", &shown).error_code(), grpc::StatusCode::NOT_FOUND);

  v1::DeleteSnapshotResponse deleted;
  ASSERT_TRUE(Delete("app", &deleted).ok());
  EXPECT_EQ(deleted.removed_snapshots(), 3u);
  EXPECT_EQ(store_->GetStats()->states, 0u);
  EXPECT_EQ(Delete("app", &deleted).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(FrontSnapshotTest, HeldStatesCannotBeDeletedAndPinsStay) {
  const Result created = Put(Files({1, 2}));
  const std::string state = created.done.snapshot().state();
  v1::StateRequest request;
  request.set_state(state);
  v1::DeleteStateResponse response;
  const grpc::Status refused = stub_->DeleteState(By("default").get(), request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("held by a snapshot"));
  v1::StateDescription description;
  ASSERT_TRUE(stub_->PinState(By("default").get(), request, &description).ok());
  v1::DeleteSnapshotResponse deleted;
  ASSERT_TRUE(Delete("app", &deleted).ok());
  EXPECT_TRUE(FrontTest::Get(state, "default", true, &description).ok()) << "it is pinned";
  EXPECT_EQ(store_->GetStats()->states, 1u);
}

TEST_F(FrontSnapshotTest, ADamagedEndIsSaidAndMendedByAnUpdate) {
  const Result created = Put(Files({1, 2}));
  Damage(created.done.snapshot().state());
  v1::StateDescription description;
  EXPECT_FALSE(FrontTest::Get(created.done.snapshot().state(), "default", true, &description).ok());
  v1::SnapshotDescription shown;
  ASSERT_TRUE(Get("app", &shown).ok());
  EXPECT_THAT(shown.damage(), HasSubstr("damaged"));
  const Result mended = Put(Files({1, 2}, created.done.snapshot().revision()));
  ASSERT_TRUE(mended.status.ok()) << mended.status.error_message();
  EXPECT_EQ(mended.done.snapshot().state(), created.done.snapshot().state());
  ASSERT_TRUE(Get("app", &shown).ok());
  EXPECT_EQ(shown.damage(), "");
}

TEST_F(FrontSnapshotTest, BadUploadsNameFieldAndLimit) {
  const auto fails = [&](const std::function<void(Upload*)>& spoil, const std::string& text) {
    Upload upload = Files({1, 2});
    spoil(&upload);
    const Result result = Put(upload);
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << text;
    EXPECT_THAT(result.status.error_message(), HasSubstr(text));
  };
  fails([](Upload* u) { u->start.set_name("a/b"); }, "name: must be");
  fails([](Upload* u) { u->start.set_name("app@x"); }, "name: must be");
  fails([](Upload* u) { u->start.set_name(std::string(65, 'a')); }, "at most 63");
  fails([](Upload* u) { u->start.set_commit("abc"); }, "commit: must have 40");
  fails([](Upload* u) { u->start.set_versions_max(257); }, "versions_max: 257, limit 256");
  fails([](Upload* u) { u->tokens.pop_back(); }, "there are 1289, but header and segments");
  fails([](Upload* u) { u->tokens[5] = 300; }, "tokens[5]: 300 is not below");
  fails([](Upload* u) { u->segments.mutable_segments(1)->set_path("file-0"); }, "twice");
  fails([](Upload* u) { u->segments.mutable_segments(1)->set_path(""); }, "segments[1].path");
  fails([](Upload* u) { u->segments.mutable_segments(0)->set_tokens(0); }, "segments[0].tokens");
  fails([](Upload* u) { u->segments.mutable_segments(0)->set_first_change(-1); }, "not negative");
  fails([](Upload* u) { u->tokens.clear(); }, "tokens: empty");
  v1::SnapshotDescription shown;
  EXPECT_EQ(Get("app@12345", &shown).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Get("app@1234567", &shown).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Get("", &shown).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto context = By("default");
  const auto stream = snapshots_->PutSnapshot(context.get());
  stream->WritesDone();
  EXPECT_THAT(stream->Finish().error_message(), HasSubstr("start: the first message"));
  EXPECT_THAT(Names(), ::testing::IsEmpty());
}

TEST_F(FrontSnapshotTest, TheTokenizerIsHandedOut) {
  v1::TokenizerDescription tokenizer;
  const grpc::Status status =
      snapshots_->GetTokenizer(By("default").get(), v1::GetTokenizerRequest(), &tokenizer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(tokenizer.kind(), "bytes");
  EXPECT_EQ(tokenizer.vocabulary(), kVocabulary);
  ServedModel ids_only = FakeModel();
  ids_only.tokenizer_kind.clear();
  engine_->SetModels({ids_only});
  EXPECT_EQ(snapshots_->GetTokenizer(By("default").get(), v1::GetTokenizerRequest(), &tokenizer)
                .error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

}  // namespace
}  // namespace deltafill::coordinator
