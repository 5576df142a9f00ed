// When another order of a snapshot's files is proposed, and what it is said to save.
#include "tests/client/snapshot_tree_fixture.h"

namespace deltafill::client {
namespace {

class SnapshotProposalTest : public SnapshotTreeTest {
 protected:
  static constexpr uint64_t kFileBytes = 1000;

  void SetUp() override {
    SnapshotTreeTest::SetUp();
    for (const char* name : {"a.cc", "b.cc", "c.cc", "d.cc", "e.cc"}) Edit(name);
  }
  void Edit(const std::string& name) {
    Write(name, std::string(kFileBytes, 'x') + std::to_string(1000 + ++edits_));
  }
  void CommitEdits(const std::string& name, int count) {
    for (int i = 0; i < count; ++i) {
      Edit(name);
      Commit();
    }
  }
  ComposedSnapshot Compose(OrderSource order, bool learn) {
    auto composed = ComposeSnapshot(Read(), TokenizeBytes, kept_, order, learn);
    EXPECT_TRUE(composed.ok()) << composed.status();
    kept_ = Kept(*composed);
    return *std::move(composed);
  }
  ComposedSnapshot Create() { return Compose(OrderSource::kHistory, false); }
  ComposedSnapshot Update() { return Compose(OrderSource::kKept, true); }

  std::vector<KeptSegment> kept_;
  int edits_ = 0;
};

TEST_F(SnapshotProposalTest, AnOrderThatHistoryMadeIsNotProposedAgainst) {
  StartGit();
  Commit();
  CommitEdits("b.cc", 10);
  CommitEdits("d.cc", 5);
  Create();
  // One commit of a file that never changed says little against the order.
  CommitEdits("a.cc", 1);
  const ComposedSnapshot updated = Update();
  EXPECT_EQ(updated.first_changed, "a.cc");
  EXPECT_FALSE(updated.proposal.has_value());
}

TEST_F(SnapshotProposalTest, AFileThatBecameHotIsProposedToGoLast) {
  StartGit();
  Commit();
  CommitEdits("e.cc", 3);
  ComposedSnapshot snapshot = Create();
  EXPECT_EQ(snapshot.segments.front().kept.path, "a.cc");
  EXPECT_EQ(snapshot.segments.back().kept.path, "e.cc");
  CommitEdits("a.cc", 30);
  snapshot = Update();
  ASSERT_TRUE(snapshot.proposal.has_value());
  // Of 34 commits some 30 would recompute one file instead of five; the first changed them all.
  EXPECT_GT(snapshot.proposal->tokens_saved, 3.0 * kFileBytes);
  EXPECT_LT(snapshot.proposal->tokens_saved, 4.5 * kFileBytes);
  EXPECT_EQ(snapshot.proposal->tokens_once, snapshot.tokens - snapshot.header.size());
  snapshot = Compose(OrderSource::kHistory, true);
  EXPECT_EQ(snapshot.segments.back().kept.path, "a.cc");
  EXPECT_FALSE(snapshot.proposal.has_value());
  // Everything changes, so the update recomputes all; the order is the right one all the same.
  for (const char* name : {"a.cc", "b.cc", "c.cc", "d.cc", "e.cc"}) Edit(name);
  Commit();
  EXPECT_FALSE(Update().proposal.has_value());
}

TEST_F(SnapshotProposalTest, AnUpdateThatRecomputesLittleProposesNothing) {
  StartGit();
  Commit();
  Create();
  CommitEdits("a.cc", 30);
  Update();
  Write("z.cc", "z");  // new, so it stands last
  Commit();
  const ComposedSnapshot updated = Update();
  EXPECT_EQ(updated.first_changed, "z.cc");
  EXPECT_FALSE(updated.proposal.has_value());
}

TEST_F(SnapshotProposalTest, WithoutGitWhatUpdatesSawDecides) {
  ComposedSnapshot snapshot = Create();
  int updates = 0;
  do {
    Edit("a.cc");
    snapshot = Update();
  } while (!snapshot.proposal && ++updates < 40);
  ASSERT_TRUE(snapshot.proposal.has_value());
  EXPECT_GT(updates, 0) << "one edit says little";
  EXPECT_LT(snapshot.proposal->tokens_saved, 4.5 * kFileBytes);
  snapshot = Compose(OrderSource::kHistory, true);
  EXPECT_EQ(snapshot.segments.back().kept.path, "a.cc");
  Edit("a.cc");
  EXPECT_FALSE(Update().proposal.has_value());
}

}  // namespace
}  // namespace deltafill::client
