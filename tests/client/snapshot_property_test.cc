// Any edit, add, delete and rename: equal trees give equal tokens, and an update gives what a fresh
// create in the snapshot's order gives.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/client/snapshot_tree_fixture.h"

namespace deltafill::client {
namespace {

// Seeds: one a run, so that a failure names the one to try again.
class SnapshotPropertyTest : public SnapshotTreeTest, public ::testing::WithParamInterface<int> {
 protected:
  // Changes the tree at random, and `files_` with it.
  void ChangeSomething() {
    const int kind = files_.empty() ? 0 : static_cast<int>(Random(5));
    if (kind == 0) {
      WriteFile(NewName(), Contents());
    } else if (kind == 1) {
      Forget(Existing());
    } else if (kind == 2) {
      const std::string from = Existing(), contents = files_[from];
      Forget(from);
      WriteFile(NewName(), contents);
    } else {
      const std::string name = Existing();
      std::string contents = files_[name];
      const size_t line = contents.find('\n', Random(contents.size() + 1));
      contents.insert(line == std::string::npos ? 0 : line + 1, Contents());
      WriteFile(name, contents);
    }
  }
  void WriteFile(const std::string& name, const std::string& contents) {
    Write(name, contents);
    files_[name] = contents;
  }
  void Forget(const std::string& name) {
    Remove(name);
    files_.erase(name);
  }

  // Files stay in their order; new ones come last.
  static void CheckOrderIsKept(const std::vector<KeptSegment>& kept,
                               const ComposedSnapshot& updated) {
    std::map<std::string, size_t> place;
    for (size_t i = 0; i < kept.size(); ++i) place[kept[i].path] = i;
    size_t last = 0;
    bool was_new = false;
    for (const ComposedSegment& segment : updated.segments) {
      const auto found = place.find(segment.kept.path);
      if (found == place.end()) {
        was_new = true;
        continue;
      }
      EXPECT_FALSE(was_new) << segment.kept.path << " stands after a new file";
      EXPECT_GE(found->second, last);
      last = found->second;
    }
  }

  uint32_t Random(size_t below) { return static_cast<uint32_t>(random_() % below); }
  std::string Existing() {
    auto at = files_.begin();
    std::advance(at, Random(files_.size()));
    return at->first;
  }
  std::string NewName() {
    static constexpr const char* kFolders[] = {"", "src/", "src/deep/", "docs/"};
    return kFolders[Random(4)] + std::string("f") + std::to_string(++named_) +
           (Random(8) == 0 ? "\n.txt" : ".txt");
  }
  std::string Contents() {
    std::string contents;
    const uint32_t lines = Random(30);
    for (uint32_t i = 0; i < lines; ++i) {
      static constexpr const char* kLines[] = {"===== f1.txt\n", "int x;\n",     "\r\n",
                                               "h\xC3\xA9\n",    "====== end\n", "last"};
      contents += kLines[Random(6)];
    }
    return contents;
  }

  std::map<std::string, std::string> files_;
  std::mt19937 random_{static_cast<uint32_t>(GetParam())};
  int named_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Seeds, SnapshotPropertyTest, ::testing::Range(1, 13));

TEST_P(SnapshotPropertyTest, AnUpdateEqualsAFreshCreate) {
  for (int i = 0; i < 12; ++i) ChangeSomething();
  const bool with_git = GetParam() % 2 == 0;
  if (with_git) {
    StartGit();
    Commit();
  }
  auto snapshot = ComposeSnapshot(Read(), TokenizeBytes, {}, OrderSource::kHistory, false);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  for (int round = 0; round < 12; ++round) {
    const uint32_t changes = Random(4);
    for (uint32_t i = 0; i < changes; ++i) ChangeSomething();
    if (with_git) Commit();
    const bool reorder = Random(6) == 0;
    const std::vector<KeptSegment> kept = Kept(*snapshot);
    const std::vector<uint32_t> before = AllTokens(*snapshot);
    auto updated = ComposeSnapshot(Read(), TokenizeBytes, kept,
                                   reorder ? OrderSource::kHistory : OrderSource::kKept, true);
    ASSERT_TRUE(updated.ok()) << updated.status();
    EXPECT_EQ(updated->segments.size(), files_.size());
    const std::vector<uint32_t> tokens = AllTokens(*updated);
    EXPECT_EQ(tokens.size(), updated->tokens);

    // A fresh create takes the order over, and knows nothing else.
    const auto fresh =
        ComposeSnapshot(Read(), TokenizeBytes, Kept(*updated), OrderSource::kKept, false);
    ASSERT_TRUE(fresh.ok());
    EXPECT_EQ(AllTokens(*fresh), tokens);
    EXPECT_EQ(fresh->changed_files, 0u);
    EXPECT_EQ(fresh->first_changed, "");

    // What is said of the first change is true: all before it is as it was.
    if (!reorder) {
      uint64_t same = updated->header.size();
      for (const ComposedSegment& segment : updated->segments) {
        if (segment.kept.path == updated->first_changed) break;
        same += segment.kept.tokens;
      }
      ASSERT_LE(same, std::min(before.size(), tokens.size()));
      EXPECT_TRUE(
          std::equal(tokens.begin(), tokens.begin() + static_cast<int64_t>(same), before.begin()));
      EXPECT_EQ(updated->first_changed.empty(), before == tokens);
      CheckOrderIsKept(kept, *updated);
    }
    snapshot = std::move(updated);
  }
}

TEST_P(SnapshotPropertyTest, TheOrderInWhichFilesWereMadeDoesNotShow) {
  for (int i = 0; i < 20; ++i) ChangeSomething();
  const auto first = ComposeSnapshot(Read(), TokenizeBytes, {}, OrderSource::kHistory, false);
  std::vector<std::pair<std::string, std::string>> all(files_.begin(), files_.end());
  std::shuffle(all.begin(), all.end(), random_);
  for (const auto& [name, contents] : all) Forget(name);
  for (const auto& [name, contents] : all) WriteFile(name, contents);
  const auto second = ComposeSnapshot(Read(), TokenizeBytes, {}, OrderSource::kHistory, false);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(AllTokens(*first), AllTokens(*second));
}

}  // namespace
}  // namespace deltafill::client
