#include "client/snapshot/version_name.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "client/snapshot/git_tree.h"
#include "client/snapshot/remembered_directory.h"

namespace deltafill::client {
namespace {

constexpr size_t kShownDigits = 12;

// As proto/snapshot.proto has it.
bool MayBeCommit(std::string_view revision) {
  return revision.size() >= 7 && revision.size() <= 64 &&
         revision.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

absl::StatusOr<std::string> CommitOf(const ServerOptions& server, const std::string& name,
                                     const std::string& revision) {
  const absl::StatusOr<RememberedDirectory> remembered = Recall(server, name);
  if (absl::IsNotFound(remembered.status())) {
    return absl::NotFoundError(
        "the directory, whose git would know the revision, is not remembered here; give a commit's "
        "first 7 or more digits");
  }
  if (!remembered.ok()) return remembered.status();
  const absl::StatusOr<std::optional<GitTree>> git = GitTree::Open(remembered->directory);
  if (!git.ok()) return git.status();
  if (git->has_value()) return (*git)->CommitOf(revision);
  return absl::NotFoundError(
      absl::StrCat(remembered->directory, " is in no git work tree that knows revisions"));
}

// What there is, for somebody who asked for something else.
std::string VersionsOf(const v1::SnapshotDescription& snapshot) {
  if (snapshot.versions().empty()) return absl::StrCat(snapshot.name(), " has no versions");
  std::string listed;
  for (const std::string& version : snapshot.versions()) {
    const size_t length = snapshot.name().size() + 1 + kShownDigits;
    absl::StrAppend(&listed, listed.empty() ? "" : ", ", version.substr(0, length));
  }
  return absl::StrCat("there are ", listed);
}

}  // namespace

absl::StatusOr<std::string> FindVersion(SnapshotCalls& calls, const ServerOptions& server,
                                        const std::string& name) {
  const size_t at = name.find('@');
  if (at == std::string::npos) return name;
  const std::string base = name.substr(0, at), revision = name.substr(at + 1);
  v1::SnapshotDescription found;
  if (MayBeCommit(revision)) {
    absl::Status status = calls.Get(name, false, &found);
    if (status.ok()) return found.name();
    if (!absl::IsNotFound(status)) return status;
  }
  v1::SnapshotDescription snapshot;
  if (absl::Status status = calls.Get(base, false, &snapshot); !status.ok()) return status;
  const absl::StatusOr<std::string> commit = CommitOf(server, base, revision);
  if (!commit.ok() && !absl::IsNotFound(commit.status())) return commit.status();
  if (commit.ok()) {
    std::string version = absl::StrCat(base, "@", *commit);
    const auto& versions = snapshot.versions();
    if (std::find(versions.begin(), versions.end(), version) != versions.end()) return version;
  }
  const std::string why = commit.ok() ? absl::StrCat("no version is kept of commit ", *commit)
                                      : std::string(commit.status().message());
  return absl::NotFoundError(absl::StrCat(name, ": ", why, "; ", VersionsOf(snapshot)));
}

}  // namespace deltafill::client
