#include "client/snapshot/git_tree.h"

#include <git2.h>

#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace deltafill::client {
namespace {

template <auto free_function>
struct Freeing {
  template <typename T>
  void operator()(T* object) const {
    free_function(object);
  }
};
template <typename T, auto free_function>
using Owned = std::unique_ptr<T, Freeing<free_function>>;

using OwnedRepository = Owned<git_repository, git_repository_free>;
using OwnedIndex = Owned<git_index, git_index_free>;
using OwnedTree = Owned<git_tree, git_tree_free>;
using OwnedCommit = Owned<git_commit, git_commit_free>;
using OwnedObject = Owned<git_object, git_object_free>;
using OwnedDiff = Owned<git_diff, git_diff_free>;
using OwnedWalk = Owned<git_revwalk, git_revwalk_free>;

absl::Status GitError(const std::string& what) {
  const git_error* error = git_error_last();
  return absl::FailedPreconditionError(
      absl::StrCat("git: ", what, ": ", error == nullptr ? "unknown" : error->message));
}

std::string Hex(const git_oid& id) {
  char text[GIT_OID_HEXSZ + 1];
  return git_oid_tostr(text, sizeof(text), &id);
}

std::string RealPath(const std::string& path) {
  std::error_code error;
  std::string real = std::filesystem::canonical(path, error).string();
  return error ? std::string() : real;
}

OwnedCommit FindCommit(git_repository* repository, const git_oid& id) {
  git_commit* commit = nullptr;
  if (git_commit_lookup(&commit, repository, &id) != 0) commit = nullptr;
  return OwnedCommit(commit);
}

OwnedTree TreeOf(git_commit* commit) {
  git_tree* tree = nullptr;
  if (commit == nullptr || git_commit_tree(&tree, commit) != 0) tree = nullptr;
  return OwnedTree(tree);
}

std::string WhyNotFile(uint32_t mode) {
  if (mode == GIT_FILEMODE_LINK) return "a symbolic link";
  if (mode == GIT_FILEMODE_COMMIT) return "a submodule";
  return "";
}

}  // namespace

struct GitTree::Handles {
  OwnedRepository repository;
};

GitTree::GitTree(std::unique_ptr<Handles> handles) : handles_(std::move(handles)) {}
GitTree::GitTree(GitTree&&) noexcept = default;
GitTree& GitTree::operator=(GitTree&&) noexcept = default;
GitTree::~GitTree() = default;

absl::StatusOr<std::optional<GitTree>> GitTree::Open(const std::string& directory) {
  static const int kStarted = git_libgit2_init();  // for the life of the process
  if (kStarted < 0) return GitError("cannot start");
  git_repository* opened = nullptr;
  const int failed = git_repository_open_ext(&opened, directory.c_str(), 0, nullptr);
  if (failed == GIT_ENOTFOUND) return std::optional<GitTree>();
  if (failed != 0) {
    return GitError(absl::StrCat(directory, " (--plain reads it as a plain directory)"));
  }
  auto handles = std::make_unique<Handles>();
  handles->repository.reset(opened);
  const char* work_tree = git_repository_workdir(opened);
  if (work_tree == nullptr) return std::optional<GitTree>();  // bare
  GitTree tree(std::move(handles));
  tree.git_directory_ = git_repository_path(opened);
  // Where the configuration says that the work tree is elsewhere, nothing is tracked here.
  const std::string root = RealPath(work_tree), here = RealPath(directory);
  if (here != root) {
    if (root.empty() || !here.starts_with(root + "/")) return std::optional<GitTree>();
    tree.prefix_ = here.substr(root.size() + 1) + "/";
  }
  if (absl::Status status = tree.ReadIndex(); !status.ok()) return status;
  if (tree.tracked_.empty()) return std::optional<GitTree>();
  return std::optional<GitTree>(std::move(tree));
}

std::optional<std::string> GitTree::Beneath(std::string_view path) const {
  if (!path.starts_with(prefix_) || path.size() == prefix_.size()) return std::nullopt;
  return std::string(path.substr(prefix_.size()));
}

absl::Status GitTree::ReadIndex() {
  git_index* opened = nullptr;
  if (git_repository_index(&opened, handles_->repository.get()) != 0) return GitError("index");
  const OwnedIndex index(opened);
  std::map<std::string, std::string> files;  // a conflict has a path several times
  const size_t count = git_index_entrycount(index.get());
  for (size_t i = 0; i < count; ++i) {
    const git_index_entry* entry = git_index_get_byindex(index.get(), i);
    const std::optional<std::string> path = Beneath(entry->path);
    if (path) files.emplace(*path, WhyNotFile(entry->mode));
  }
  for (auto& [path, left_out] : files) tracked_.push_back({path, std::move(left_out)});
  return absl::OkStatus();
}

std::string GitTree::HeadCommit() const {
  git_oid id;
  const int failed = git_reference_name_to_id(&id, handles_->repository.get(), "HEAD");
  return failed == 0 ? Hex(id) : std::string();
}

absl::StatusOr<std::string> GitTree::CommitOf(const std::string& revision) const {
  git_object *found = nullptr, *peeled = nullptr;
  if (git_revparse_single(&found, handles_->repository.get(), revision.c_str()) != 0) {
    found = nullptr;
  }
  const OwnedObject object(found);
  if (object == nullptr || git_object_peel(&peeled, object.get(), GIT_OBJECT_COMMIT) != 0) {
    return absl::NotFoundError(absl::StrCat("git knows no commit of that name in ",
                                            git_repository_workdir(handles_->repository.get())));
  }
  const OwnedObject commit(peeled);
  return Hex(*git_object_id(commit.get()));
}

std::string GitTree::BlobId(std::string_view contents) {
  git_oid id;
  if (git_odb_hash(&id, contents.data(), contents.size(), GIT_OBJECT_BLOB) != 0) return "";
  return Hex(id);
}

absl::StatusOr<std::map<std::string, std::string>> GitTree::HeadBlobs() const {
  git_repository* repository = handles_->repository.get();
  git_oid id;
  if (git_reference_name_to_id(&id, repository, "HEAD") != 0) return GitError("HEAD");
  const OwnedCommit commit = FindCommit(repository, id);
  const OwnedTree tree = TreeOf(commit.get());
  if (tree == nullptr) return GitError("HEAD's tree");
  struct Visit {
    const GitTree* self;
    std::map<std::string, std::string> blobs;
  } visit{this, {}};
  const auto add = [](const char* root, const git_tree_entry* entry, void* payload) {
    auto* visit = static_cast<Visit*>(payload);
    if (git_tree_entry_type(entry) != GIT_OBJECT_BLOB) return 0;
    if (git_tree_entry_filemode(entry) == GIT_FILEMODE_LINK) return 0;
    const std::optional<std::string> path =
        visit->self->Beneath(std::string(root) + git_tree_entry_name(entry));
    if (path) visit->blobs[*path] = Hex(*git_tree_entry_id(entry));
    return 0;
  };
  if (git_tree_walk(tree.get(), GIT_TREEWALK_PRE, add, &visit) != 0) return GitError("tree");
  return std::move(visit.blobs);
}

absl::StatusOr<std::vector<std::vector<std::string>>> GitTree::ChangeHistory() const {
  git_repository* repository = handles_->repository.get();
  std::vector<std::vector<std::string>> history;
  if (HeadCommit().empty()) return history;
  git_revwalk* started = nullptr;
  if (git_revwalk_new(&started, repository) != 0) return GitError("history");
  const OwnedWalk walk(started);
  git_revwalk_simplify_first_parent(walk.get());
  if (git_revwalk_push_head(walk.get()) != 0) return GitError("history");
  git_oid id;
  while (history.size() < kHistoryCommitsMax && git_revwalk_next(&id, walk.get()) == 0) {
    const OwnedCommit commit = FindCommit(repository, id);
    const OwnedTree after = TreeOf(commit.get());
    if (after == nullptr) break;  // a shallow clone ends here
    OwnedTree before;
    if (git_commit_parentcount(commit.get()) > 0) {
      const OwnedCommit parent = FindCommit(repository, *git_commit_parent_id(commit.get(), 0));
      before = TreeOf(parent.get());
      if (before == nullptr) break;
    }
    git_diff* made = nullptr;
    if (git_diff_tree_to_tree(&made, repository, before.get(), after.get(), nullptr) != 0) break;
    const OwnedDiff diff(made);
    std::set<std::string> paths;
    for (size_t i = 0; i < git_diff_num_deltas(diff.get()); ++i) {
      const git_diff_delta* delta = git_diff_get_delta(diff.get(), i);
      for (const char* changed : {delta->old_file.path, delta->new_file.path}) {
        const std::optional<std::string> path = Beneath(changed == nullptr ? "" : changed);
        if (path) paths.insert(*path);
      }
    }
    history.emplace_back(paths.begin(), paths.end());
  }
  return history;
}

}  // namespace deltafill::client
