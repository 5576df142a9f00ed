// A folder of files for the snapshot tests, and git commands to work on it.
#ifndef DELTAFILL_TESTS_CLIENT_SNAPSHOT_TREE_FIXTURE_H_
#define DELTAFILL_TESTS_CLIENT_SNAPSHOT_TREE_FIXTURE_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "client/snapshot/composed_snapshot.h"
#include "client/snapshot/source_tree.h"

namespace deltafill::client {

class SnapshotTreeTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  void Write(const std::string& name, std::string_view contents);
  void Remove(const std::string& name);

  // A commit of everything in the folder through libgit2, so that no git program is needed.
  void StartGit();
  std::string Commit();

  SourceTree Read(const TreeOptions& options = {}) const;
  static std::vector<std::string> Paths(const SourceTree& tree);
  static std::string ReasonOf(const SourceTree& tree, const std::string& path);  // "" if none

  std::filesystem::path folder_;
};

// Every byte is a token.
absl::StatusOr<std::vector<uint32_t>> TokenizeBytes(std::string_view text);
std::vector<uint32_t> AllTokens(const ComposedSnapshot& snapshot);
std::vector<KeptSegment> Kept(const ComposedSnapshot& snapshot);

}  // namespace deltafill::client

#endif  // DELTAFILL_TESTS_CLIENT_SNAPSHOT_TREE_FIXTURE_H_
