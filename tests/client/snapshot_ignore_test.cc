// Ignore rules against git's documented meaning; order rules against brute force.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "client/snapshot/file_order.h"
#include "client/snapshot/ignore_rules.h"
#include "tests/client/snapshot_tree_fixture.h"

namespace deltafill::client {
namespace {

using ::testing::ElementsAre;

TEST(IgnoreRules, PatternsMeanWhatGitSays) {
  const struct {
    const char* pattern;
    const char* path;
    bool is_directory;
    bool ignored;
  } kCases[] = {
      {"*.o", "a.o", false, true},
      {"*.o", "deep/down/a.o", false, true},
      {"*.o", "a.oo", false, false},
      {"/a", "a", false, true},
      {"/a", "b/a", false, false},
      {"a/b", "a/b", false, true},
      {"a/b", "x/a/b", false, false},
      {"build/", "build", true, true},
      {"build/", "build", false, false},
      {"build/", "x/build", true, true},
      {"**/a", "x/y/a", false, true},
      {"**/a", "a", false, true},
      {"a/**", "a/x/y", false, true},
      {"a/**", "a", true, false},
      {"a/**/b", "a/b", false, true},
      {"a/**/b", "a/x/y/b", false, true},
      {"a/*/b", "a/x/y/b", false, false},
      {"?.c", "a.c", false, true},
      {"[a-c].c", "b.c", false, true},
      {"[!a-c].c", "b.c", false, false},
      {"[]].c", "].c", false, true},
      {"[ab", "[ab", false, true},
      {"\\#x", "#x", false, true},
      {"#x", "#x", false, false},
      {"\\!x", "!x", false, true},
      {"trailing   ", "trailing", false, true},
      {"kept\\ ", "kept ", false, true},
      {"\\*", "*", false, true},
      {"\\*", "a", false, false},
      {"a*b*c", "aXbYc", false, true},
      {"", "a", false, false},
      {"/", "a", false, false},
  };
  for (const auto& each : kCases) {
    IgnoreRules rules;
    rules.Add("", std::string(each.pattern) + "\r\n");
    EXPECT_EQ(rules.IsIgnored(each.path, each.is_directory), each.ignored)
        << each.pattern << " and " << each.path;
  }
}

TEST(IgnoreRules, TheLastAndTheDeepestDecides) {
  IgnoreRules rules;
  rules.Add("", "*.txt\n!keep.txt\nlogs/\n");
  rules.Add("sub", "!b.txt\nkeep.txt\n/only.c\n");
  EXPECT_TRUE(rules.IsIgnored("a.txt", false));
  EXPECT_FALSE(rules.IsIgnored("keep.txt", false));
  EXPECT_TRUE(rules.IsIgnored("sub/a.txt", false));
  EXPECT_FALSE(rules.IsIgnored("sub/b.txt", false));
  EXPECT_TRUE(rules.IsIgnored("sub/keep.txt", false));
  EXPECT_TRUE(rules.IsIgnored("sub/only.c", false));
  EXPECT_FALSE(rules.IsIgnored("sub/x/only.c", false));
  EXPECT_FALSE(rules.IsIgnored("other/only.c", false));
  EXPECT_TRUE(rules.IsIgnoredWithParents("x/logs/keep.txt")) << "its directory is ignored";
  EXPECT_FALSE(rules.IsIgnoredWithParents("x/keep.txt"));
}

TEST(IgnoreRules, NoPatternTakesForever) {
  const std::string pattern = "a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b";
  EXPECT_FALSE(MatchesName(pattern, std::string(5000, 'a')));
  IgnoreRules rules;
  rules.Add("", "**/**/**/**/**/**/**/**/**/**/**/**/**/x\n");
  std::string path;
  for (int i = 0; i < 200; ++i) path += "a/";
  EXPECT_FALSE(rules.IsIgnored(path + "y", false));
}

class SnapshotOrderTest : public SnapshotTreeTest {};

TEST_F(SnapshotOrderTest, BothIgnoreFilesCountInPlainDirectories) {
  Write(".gitignore", "*.log\n");
  Write(".deltafillignore", "docs/\n");
  Write("a.cc", "a");
  Write("a.log", "a");
  Write("docs/b.cc", "b");
  Write("sub/.deltafillignore", "c.cc\n");
  Write("sub/c.cc", "c");
  EXPECT_THAT(Paths(Read()),
              ElementsAre(".deltafillignore", ".gitignore", "a.cc", "sub/.deltafillignore"));
}

TEST_F(SnapshotOrderTest, InAWorkTreeOnlyTrackedFilesCount) {
  Write(".gitignore", "*.log\n");
  Write(".deltafillignore", "docs/\n");
  Write("a.cc", "a");
  Write("a.log", "a");
  Write("docs/b.cc", "b");
  Write("sub/c.cc", "c");
  StartGit();
  const std::string commit = Commit();
  Write("untracked.cc", "u");
  SourceTree tree = Read();
  EXPECT_THAT(Paths(tree), ElementsAre(".deltafillignore", ".gitignore", "a.cc", "sub/c.cc"));
  EXPECT_EQ(tree.commit, commit);
  Write("a.cc", "other");
  EXPECT_EQ(Read().commit, "") << "the tree differs from the commit";
  Write("a.cc", "a");
  EXPECT_EQ(Read().commit, commit);
  Remove("sub/c.cc");
  EXPECT_EQ(Read().commit, "");
  auto inside = ReadSourceTree(Path("docs"), {});
  ASSERT_TRUE(inside.ok()) << inside.status();
  EXPECT_THAT(Paths(*inside), ElementsAre("b.cc")) << "paths are relative to the directory";
  EXPECT_EQ(inside->commit, commit);
}

TEST_F(SnapshotOrderTest, WhatChangesOftenGoesLast) {
  for (const char* name : {"a_hot.cc", "b_cold.cc", "c_warm.cc", "d_cold.cc"}) {
    Write(name, std::string(100, 'x'));
  }
  StartGit();
  Commit();
  for (int i = 0; i < 12; ++i) {
    Write("a_hot.cc", std::string(100, 'x') + std::to_string(i));
    if (i % 4 == 0) Write("c_warm.cc", std::string(100, 'x') + std::to_string(i));
    Commit();
  }
  const auto composed = ComposeSnapshot(Read(), TokenizeBytes, {}, OrderSource::kHistory, false);
  ASSERT_TRUE(composed.ok());
  std::vector<std::string> order;
  for (const ComposedSegment& segment : composed->segments) order.push_back(segment.kept.path);
  EXPECT_THAT(order, ElementsAre("b_cold.cc", "d_cold.cc", "c_warm.cc", "a_hot.cc"));
  EXPECT_GT(composed->segments[3].kept.change_rate, composed->segments[2].kept.change_rate);
}

double Cost(const std::vector<uint32_t>& order, const std::vector<uint64_t>& lengths,
            const std::vector<ChangeSet>& changes) {
  double cost = 0;
  for (const ChangeSet& change : changes) {
    double after = 0, at_foremost = 0;
    for (size_t i = order.size(); i-- > 0;) {
      after += static_cast<double>(lengths[order[i]]);
      if (std::count(change.files.begin(), change.files.end(), order[i])) at_foremost = after;
    }
    cost += change.weight * at_foremost;
  }
  return cost;
}

TEST(FileOrder, IsNearTheBestOfAllOrders) {
  std::mt19937 random(7);
  double ours = 0, best = 0, by_path = 0;
  for (int round = 0; round < 40; ++round) {
    const size_t count = 6;
    std::vector<uint64_t> lengths;
    for (size_t i = 0; i < count; ++i) lengths.push_back(10 + random() % 1000);
    std::vector<ChangeSet> changes;
    for (int i = 0; i < 12; ++i) {
      ChangeSet change;
      change.weight = 1.0 + random() % 3;
      for (uint32_t file = 0; file < count; ++file) {
        if (random() % 3 == 0) change.files.push_back(file);
      }
      if (!change.files.empty()) changes.push_back(change);
    }
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    by_path += Cost(order, lengths, changes);
    double least = std::numeric_limits<double>::max();
    do {
      least = std::min(least, Cost(order, lengths, changes));
    } while (std::next_permutation(order.begin(), order.end()));
    best += least;
    const std::vector<uint32_t> made = OrderByChange(lengths, changes);
    EXPECT_EQ(made, OrderByChange(lengths, changes)) << "deterministic";
    EXPECT_TRUE(std::is_permutation(made.begin(), made.end(), order.begin()));
    ours += Cost(made, lengths, changes);
  }
  EXPECT_LT(ours, 1.1 * best);
  EXPECT_GT(by_path, 1.1 * best) << "otherwise this shows nothing";
}

TEST(FileOrder, ByRateIsTheBestForSingleChanges) {
  std::mt19937 random(8);
  for (int round = 0; round < 20; ++round) {
    std::vector<uint64_t> lengths;
    std::vector<double> rates;
    for (int i = 0; i < 6; ++i) {
      lengths.push_back(1 + random() % 1000);
      rates.push_back(static_cast<double>(random() % 100) / 100);
    }
    std::vector<uint32_t> order(6);
    std::iota(order.begin(), order.end(), 0u);
    double least = std::numeric_limits<double>::max();
    do {
      least = std::min(least, ExpectedRecompute(order, lengths, rates));
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_NEAR(ExpectedRecompute(OrderByRate(lengths, rates), lengths, rates), least, 1e-6);
  }
}

TEST(FileOrder, WithoutHistoryTiesGoByNumber) {
  const std::vector<uint64_t> lengths{5, 5, 5};
  EXPECT_THAT(OrderByChange(lengths, {}), ElementsAre(0, 1, 2));
  EXPECT_THAT(OrderByRate(lengths, std::vector<double>{0, 0, 0}), ElementsAre(0, 1, 2));
  EXPECT_TRUE(OrderByChange({}, {}).empty());
}

}  // namespace
}  // namespace deltafill::client
