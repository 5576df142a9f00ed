#include "client/snapshot/source_tree.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/snapshot/beneath.h"
#include "client/snapshot/ignore_rules.h"
#include "client/snapshot/rendering.h"
#include "client/snapshot/text_filter.h"

namespace deltafill::client {
namespace {

constexpr std::string_view kGitIgnore = ".gitignore";
constexpr std::string_view kOurIgnore = ".deltafillignore";

std::string Join(std::string_view directory, std::string_view name) {
  return directory.empty() ? std::string(name)
                           : absl::StrCat(std::string(directory), "/", std::string(name));
}

// What is in a tree, before any file is read. Raw paths.
struct Listing {
  std::vector<std::string> files;
  std::vector<std::string> directories;
  std::vector<LeftOut> left_out;
  std::set<std::string> ignored;  // of tracked files
};

// Walks a plain directory.
class DirectoryWalk {
 public:
  explicit DirectoryWalk(const OpenFile& tree) : tree_(tree) {}

  absl::StatusOr<Listing> Run() {
    if (absl::Status status = Visit(OpenDirectoryBeneath(tree_, ""), "", 0); !status.ok()) {
      return status;
    }
    return std::move(listing_);
  }

 private:
  absl::Status Visit(const OpenFile& directory, const std::string& path, int depth) {
    absl::StatusOr<std::vector<DirectoryEntry>> entries = ListDirectory(directory, &entries_);
    if (!entries.ok()) {
      if (entries_ > kEntriesMax || depth == 0) return entries.status();
      listing_.left_out.push_back({path, std::string(entries.status().message())});
      return absl::OkStatus();
    }
    listing_.directories.push_back(path);
    for (std::string_view name : {kGitIgnore, kOurIgnore}) {
      const FileContents rules = ReadBeneath(directory, name, kIgnoreFileBytesMax);
      if (rules.left_out.empty()) rules_.Add(path, rules.bytes);
    }
    for (const DirectoryEntry& entry : *entries) {
      if (entry.name == ".git") continue;
      const std::string below = Join(path, entry.name);
      if (rules_.IsIgnored(below, entry.kind == EntryKind::kDirectory)) continue;
      if (absl::Status status = VisitEntry(directory, entry, below, depth); !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }

  absl::Status VisitEntry(const OpenFile& directory, const DirectoryEntry& entry,
                          const std::string& path, int depth) {
    if (entry.kind == EntryKind::kOther) {
      listing_.left_out.push_back({path, entry.left_out});
    } else if (path.size() > kPathBytesMax) {
      listing_.left_out.push_back(
          {path, absl::StrCat("its path is longer than ", kPathBytesMax, " bytes")});
    } else if (entry.kind == EntryKind::kFile) {
      listing_.files.push_back(path);
    } else if (depth + 1 > kDepthMax) {
      listing_.left_out.push_back({path, absl::StrCat("deeper than ", kDepthMax, " directories")});
    } else {
      const OpenFile inside = OpenDirectoryBeneath(directory, entry.name);
      if (inside.is_open()) return Visit(inside, path, depth + 1);
      listing_.left_out.push_back({path, "cannot be opened"});
    }
    return absl::OkStatus();
  }

  const OpenFile& tree_;
  IgnoreRules rules_;
  Listing listing_;
  size_t entries_ = 0;
};

// The tracked files of a work tree; .deltafillignore files are read where there is one.
Listing ListTracked(const OpenFile& tree, const GitTree& git) {
  std::set<std::string> directories{""};
  for (const TrackedFile& file : git.tracked()) {
    for (size_t slash = file.path.rfind('/'); slash != std::string::npos && slash > 0;
         slash = file.path.rfind('/', slash - 1)) {
      if (!directories.insert(file.path.substr(0, slash)).second) break;
    }
  }
  IgnoreRules rules;
  for (const std::string& directory : directories) {
    const FileContents read = ReadBeneath(tree, Join(directory, kOurIgnore), kIgnoreFileBytesMax);
    if (read.left_out.empty()) rules.Add(directory, read.bytes);
  }
  Listing listing;
  listing.directories.assign(directories.begin(), directories.end());
  for (const TrackedFile& file : git.tracked()) {
    if (rules.IsIgnoredWithParents(file.path)) {
      listing.ignored.insert(file.path);
    } else if (file.left_out.empty()) {
      listing.files.push_back(file.path);
    } else {
      listing.left_out.push_back({file.path, file.left_out});
    }
  }
  return listing;
}

// Whether what was read is what HEAD's tree has. blobs: of the files that were kept.
bool IsOfHead(const GitTree& git, const Listing& listing,
              const std::map<std::string, std::string>& blobs,
              const std::set<std::string>& not_compared) {
  const absl::StatusOr<std::map<std::string, std::string>> head = git.HeadBlobs();
  if (!head.ok()) return false;
  for (const auto& [path, blob] : blobs) {
    const auto found = head->find(path);
    if (found == head->end() || found->second != blob) return false;
  }
  return std::all_of(head->begin(), head->end(), [&](const auto& entry) {
    const std::string& path = entry.first;
    return blobs.contains(path) || not_compared.contains(path) || listing.ignored.contains(path);
  });
}

absl::Status TooMuch(const std::string& directory, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(directory, ": more than ", what, "; leave some out with a .deltafillignore"));
}

absl::StatusOr<Listing> ListTree(const OpenFile& tree, const std::string& directory,
                                 const TreeOptions& options, std::unique_ptr<GitTree>* git) {
  if (!options.plain) {
    absl::StatusOr<std::optional<GitTree>> opened = GitTree::Open(directory);
    if (!opened.ok()) return opened.status();
    if (opened->has_value()) {
      *git = std::make_unique<GitTree>(**std::move(opened));
      return ListTracked(tree, **git);
    }
  }
  absl::StatusOr<Listing> walked = DirectoryWalk(tree).Run();
  if (walked.ok()) return walked;
  return absl::InvalidArgumentError(
      absl::StrCat(directory, ": ", std::string(walked.status().message())));
}

}  // namespace

absl::StatusOr<SourceTree> ReadSourceTree(const std::string& directory,
                                          const TreeOptions& options) {
  absl::StatusOr<OpenFile> opened = OpenTree(directory);
  if (!opened.ok()) return opened.status();
  SourceTree tree;
  absl::StatusOr<Listing> listing = ListTree(*opened, directory, options, &tree.git);
  if (!listing.ok()) return listing.status();
  std::map<std::string, std::string> blobs;
  std::set<std::string> not_compared;
  bool as_tracked = true;  // whatever could not be read was left out for its size
  uint64_t bytes = 0;
  for (const std::string& path : listing->files) {
    FileContents read = ReadBeneath(*opened, path, options.file_bytes_max);
    const bool there = read.left_out.empty();
    std::string reason = there ? WhyLeftOut(path, read.bytes) : read.left_out;
    if (!reason.empty()) {
      as_tracked = as_tracked && (there || read.too_long);
      not_compared.insert(path);
      listing->left_out.push_back({path, std::move(reason)});
      continue;
    }
    bytes += read.bytes.size();
    if (bytes > kTreeBytesMax) {
      return TooMuch(directory, absl::StrCat(kTreeBytesMax, " bytes of text"));
    }
    if (tree.files.size() == kTreeFilesMax) {
      return TooMuch(directory, absl::StrCat(kTreeFilesMax, " files"));
    }
    if (tree.git != nullptr) blobs[path] = GitTree::BlobId(read.bytes);
    tree.files.push_back({QuotePath(path), std::move(read.bytes)});
  }
  const auto by_path = [](const auto& a, const auto& b) { return a.path < b.path; };
  for (LeftOut& left_out : listing->left_out) left_out.path = QuotePath(left_out.path);
  tree.left_out = std::move(listing->left_out);
  std::sort(tree.files.begin(), tree.files.end(), by_path);
  std::sort(tree.left_out.begin(), tree.left_out.end(), by_path);
  const bool of_head =
      tree.git != nullptr && as_tracked && IsOfHead(*tree.git, *listing, blobs, not_compared);
  if (of_head) tree.commit = tree.git->HeadCommit();
  return tree;
}

absl::StatusOr<SourceDirectories> ListSourceDirectories(const std::string& directory,
                                                        const TreeOptions& options) {
  absl::StatusOr<OpenFile> opened = OpenTree(directory);
  if (!opened.ok()) return opened.status();
  std::unique_ptr<GitTree> git;
  absl::StatusOr<Listing> listing = ListTree(*opened, directory, options, &git);
  if (!listing.ok()) return listing.status();
  SourceDirectories directories;
  directories.paths = std::move(listing->directories);
  if (git != nullptr) directories.git_directory = git->git_directory();
  return directories;
}

}  // namespace deltafill::client
