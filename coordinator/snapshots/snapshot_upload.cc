#include "coordinator/snapshots/snapshot_upload.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/front/lower_hex.h"
#include "coordinator/snapshots/snapshot_limits.h"
#include "proto/snapshot.pb.h"

namespace deltafill::coordinator {
namespace {

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool IsRate(double value) { return std::isfinite(value) && value >= 0.0; }

absl::Status CheckStart(const v1::PutSnapshotStart& start) {
  if (absl::Status status = CheckBaseName(start.name()); !status.ok()) return status;
  if (start.model().size() > kModelNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: longer than ", kModelNameBytesMax, " bytes"));
  }
  if (!start.commit().empty() && !IsCommitName(start.commit())) {
    return absl::InvalidArgumentError("commit: must have 40 or 64 hexadecimal digits, or none");
  }
  if (start.versions_max() > kVersionsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("versions_max: ", start.versions_max(), ", limit ", kVersionsMax));
  }
  return absl::OkStatus();
}

absl::Status CheckSegment(const v1::SnapshotSegment& segment, int index) {
  const auto fault = [index](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("segments[", index, "].", what));
  };
  if (segment.path().empty() || segment.path().size() > kSnapshotPathBytesMax) {
    return fault(absl::StrCat("path: ", segment.path().size(), " bytes, must be 1 to ",
                              kSnapshotPathBytesMax));
  }
  if (segment.content_hash().size() > kContentHashBytesMax) {
    return fault(absl::StrCat("content_hash: more than ", kContentHashBytesMax, " bytes"));
  }
  if (segment.tokens() == 0 || segment.tokens() > kPromptTokensMax) {
    return fault(absl::StrCat("tokens: ", segment.tokens(), ", must be 1 to ", kPromptTokensMax));
  }
  if (!IsRate(segment.change_rate()) || !IsRate(segment.first_change())) {
    return fault("change_rate and first_change: must be finite and not negative");
  }
  return absl::OkStatus();
}

absl::Status AppendTokens(const std::string& bytes, std::vector<uint32_t>* tokens) {
  if (bytes.size() % sizeof(uint32_t) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: ", bytes.size(), " bytes are not a whole number of uint32"));
  }
  const size_t count = bytes.size() / sizeof(uint32_t);
  if (tokens->size() + count > kPromptTokensMax) {
    return absl::InvalidArgumentError(absl::StrCat("tokens: more than ", kPromptTokensMax,
                                                   "; leave files out with a .deltafillignore"));
  }
  const size_t before = tokens->size();
  tokens->resize(before + count);
  if (count > 0) std::memcpy(tokens->data() + before, bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status CheckWhole(const SnapshotUpload& upload) {
  if (upload.tokens.empty()) {
    return absl::InvalidArgumentError("tokens: empty; at least 1 token is required");
  }
  uint64_t tokens = upload.stored->header_tokens();
  std::set<std::string_view> paths;
  for (const v1::SnapshotSegment& segment : upload.stored->segments()) {
    tokens += segment.tokens();
    if (paths.insert(segment.path()).second) continue;
    return absl::InvalidArgumentError("segments: a path is there twice");
  }
  if (tokens == upload.tokens.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tokens: there are ", upload.tokens.size(),
                                                 ", but header and segments have ", tokens));
}

}  // namespace

SnapshotUpload::SnapshotUpload()
    : start(std::make_unique<v1::PutSnapshotStart>()),
      stored(std::make_unique<v1::StoredSnapshot>()) {}
SnapshotUpload::SnapshotUpload(SnapshotUpload&&) noexcept = default;
SnapshotUpload& SnapshotUpload::operator=(SnapshotUpload&&) noexcept = default;
SnapshotUpload::~SnapshotUpload() = default;

absl::Status CheckBaseName(std::string_view name) {
  const bool fits = !name.empty() && name.size() <= kSnapshotBaseNameBytesMax &&
                    IsLetterOrDigit(name[0]) && std::all_of(name.begin(), name.end(), [](char c) {
                      return IsLetterOrDigit(c) || c == '.' || c == '_' || c == '-';
                    });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("name: must be a letter or digit and then at most ",
                   kSnapshotBaseNameBytesMax - 1, " of [A-Za-z0-9._-]"));
}

bool IsCommitName(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) && IsLowerHex(text);
}

absl::StatusOr<SnapshotUpload> ReadUpload(const ReceiveRequest& receive) {
  SnapshotUpload upload;
  v1::PutSnapshotRequest request;
  if (!receive(&request) || !request.has_start()) {
    return absl::InvalidArgumentError("start: the first message must be it");
  }
  *upload.start = std::move(*request.mutable_start());
  if (absl::Status status = CheckStart(*upload.start); !status.ok()) return status;
  upload.stored->set_header_tokens(upload.start->header_tokens());
  if (upload.stored->header_tokens() > kPromptTokensMax) {
    return absl::InvalidArgumentError(absl::StrCat("header_tokens: limit ", kPromptTokensMax));
  }
  while (receive(&request)) {
    absl::Status status;
    if (request.has_segments()) {
      for (v1::SnapshotSegment& segment : *request.mutable_segments()->mutable_segments()) {
        const int index = upload.stored->segments_size();
        if (index == static_cast<int>(kSnapshotFilesMax)) {
          return absl::InvalidArgumentError(
              absl::StrCat("segments: more than ", kSnapshotFilesMax,
                           " files a snapshot; leave some out with a .deltafillignore"));
        }
        status.Update(CheckSegment(segment, index));
        *upload.stored->add_segments() = std::move(segment);
      }
    } else if (request.step_case() == v1::PutSnapshotRequest::kTokens) {
      status = AppendTokens(request.tokens(), &upload.tokens);
    } else {
      status = absl::InvalidArgumentError("a message has neither segments nor tokens");
    }
    if (!status.ok()) return status;
  }
  if (absl::Status status = CheckWhole(upload); !status.ok()) return status;
  return upload;
}

}  // namespace deltafill::coordinator
