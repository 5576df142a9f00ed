#include "tests/client/snapshot_tree_fixture.h"

#include <git2.h>
#include <unistd.h>

#include <fstream>

namespace deltafill::client {
namespace {

namespace fs = std::filesystem;

void Must(int failed) { ASSERT_EQ(failed, 0) << git_error_last()->message; }

}  // namespace

void SnapshotTreeTest::SetUp() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(test->test_suite_name()) + "_" + test->name();
  for (char& c : name) c = c == '/' ? '_' : c;
  folder_ = fs::path(::testing::TempDir()) / (name + "_" + std::to_string(::getpid()));
  fs::remove_all(folder_);
  fs::create_directories(folder_);
}

void SnapshotTreeTest::TearDown() { fs::remove_all(folder_); }

void SnapshotTreeTest::Write(const std::string& name, std::string_view contents) {
  fs::create_directories((folder_ / name).parent_path());
  std::ofstream file(folder_ / name, std::ios::binary | std::ios::trunc);
  file << contents;
  file.close();
  ASSERT_TRUE(file) << name;
}

void SnapshotTreeTest::Remove(const std::string& name) { fs::remove_all(folder_ / name); }

void SnapshotTreeTest::StartGit() {
  git_libgit2_init();
  git_repository* repository = nullptr;
  Must(git_repository_init(&repository, folder_.c_str(), 0));
  git_repository_free(repository);
}

std::string SnapshotTreeTest::Commit() {
  git_repository* repository = nullptr;
  git_index* index = nullptr;
  git_tree* tree = nullptr;
  git_signature* author = nullptr;
  git_oid tree_id, parent_id, commit_id;
  Must(git_repository_open(&repository, folder_.c_str()));
  Must(git_repository_index(&index, repository));
  Must(git_index_update_all(index, nullptr, nullptr, nullptr));
  Must(git_index_add_all(index, nullptr, 0, nullptr, nullptr));
  Must(git_index_write(index));
  Must(git_index_write_tree(&tree_id, index));
  Must(git_tree_lookup(&tree, repository, &tree_id));
  Must(git_signature_new(&author, "A", "a@example.org", 1'000'000, 0));
  git_commit* parent = nullptr;
  if (git_reference_name_to_id(&parent_id, repository, "HEAD") == 0) {
    Must(git_commit_lookup(&parent, repository, &parent_id));
  }
  const git_commit* parents[] = {parent};
  Must(git_commit_create(&commit_id, repository, "HEAD", author, author, nullptr, "change", tree,
                         parent == nullptr ? 0 : 1, parents));
  const std::string id = git_oid_tostr_s(&commit_id);
  git_commit_free(parent);
  git_signature_free(author);
  git_tree_free(tree);
  git_index_free(index);
  git_repository_free(repository);
  return id;
}

SourceTree SnapshotTreeTest::Read(const TreeOptions& options) const {
  auto tree = ReadSourceTree(folder_.string(), options);
  EXPECT_TRUE(tree.ok()) << tree.status();
  return tree.ok() ? *std::move(tree) : SourceTree();
}

std::vector<std::string> SnapshotTreeTest::Paths(const SourceTree& tree) {
  std::vector<std::string> paths;
  for (const SourceFile& file : tree.files) paths.push_back(file.path);
  return paths;
}

std::string SnapshotTreeTest::ReasonOf(const SourceTree& tree, const std::string& path) {
  for (const LeftOut& left_out : tree.left_out) {
    if (left_out.path == path) return left_out.reason;
  }
  return "";
}

absl::StatusOr<std::vector<uint32_t>> TokenizeBytes(std::string_view text) {
  std::vector<uint32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::vector<uint32_t> AllTokens(const ComposedSnapshot& snapshot) {
  std::vector<uint32_t> tokens = snapshot.header;
  for (const ComposedSegment& segment : snapshot.segments) {
    tokens.insert(tokens.end(), segment.tokens.begin(), segment.tokens.end());
  }
  return tokens;
}

std::vector<KeptSegment> Kept(const ComposedSnapshot& snapshot) {
  std::vector<KeptSegment> kept;
  for (const ComposedSegment& segment : snapshot.segments) kept.push_back(segment.kept);
  return kept;
}

}  // namespace deltafill::client
