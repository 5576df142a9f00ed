#include "client/snapshot/put_run.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/snapshot/source_tree.h"

namespace deltafill::client {
namespace {

constexpr int kPutsMax = 3;

std::vector<KeptSegment> KeptSegments(const v1::SnapshotDescription& snapshot) {
  std::vector<KeptSegment> kept;
  for (const v1::SnapshotSegment& segment : snapshot.segments()) {
    kept.push_back({segment.path(), segment.content_hash(), segment.tokens(), segment.change_rate(),
                    segment.first_change()});
  }
  return kept;
}

std::vector<uint32_t> AllTokens(const ComposedSnapshot& snapshot) {
  std::vector<uint32_t> tokens = snapshot.header;
  for (const ComposedSegment& segment : snapshot.segments) {
    tokens.insert(tokens.end(), segment.tokens.begin(), segment.tokens.end());
  }
  return tokens;
}

bool HasVersion(const v1::SnapshotDescription& snapshot, const std::string& commit) {
  if (commit.empty()) return true;
  const std::string version = absl::StrCat(snapshot.name(), "@", commit);
  return std::find(snapshot.versions().begin(), snapshot.versions().end(), version) !=
         snapshot.versions().end();
}

absl::StatusOr<PutReport> PutOnce(SnapshotCalls& calls, FetchedTokenizer& tokenizer,
                                  const PutAsk& ask, const RememberedDirectory& settings) {
  v1::SnapshotDescription old;
  const std::string& base = ask.create ? ask.order_from : ask.name;
  if (!base.empty()) {
    if (absl::Status status = calls.Get(base, true, &old); !status.ok()) return status;
  }
  const std::string model = settings.model.empty() ? old.summary().model() : settings.model;
  absl::StatusOr<Tokenize> tokenize = tokenizer.Fetch(calls, model);
  if (!tokenize.ok()) return tokenize.status();
  absl::StatusOr<SourceTree> tree = ReadSourceTree(settings.directory, settings.tree);
  if (!tree.ok()) return tree.status();
  const std::vector<KeptSegment> kept = KeptSegments(old);
  const bool keeps_order = !ask.reorder && !base.empty();
  absl::StatusOr<ComposedSnapshot> composed =
      ComposeSnapshot(*tree, *tokenize, kept,
                      keeps_order ? OrderSource::kKept : OrderSource::kHistory, !ask.create);
  if (!composed.ok()) return composed.status();
  PutReport report;
  report.commit = settings.versions_max > 0 ? tree->commit : "";
  report.changed_files = ask.create ? 0 : composed->changed_files;
  report.first_changed = ask.create ? "" : composed->first_changed;
  report.proposal = composed->proposal;
  report.left_out = std::move(tree->left_out);
  if (ask.keep_tokens) report.tokens = AllTokens(*composed);
  report.skipped = ask.skip_unchanged && composed->changed_files == 0 && old.damage().empty() &&
                   HasVersion(old, report.commit);
  if (report.skipped) return report;
  v1::PutSnapshotStart start;
  start.set_model(model);
  start.set_name(ask.name);
  start.set_replaced_revision(ask.create ? 0 : old.revision());
  start.set_commit(report.commit);
  start.set_versions_max(settings.versions_max);
  start.set_checkpoint_bytes_max(settings.checkpoint_bytes_max);
  start.set_no_resume(ask.no_resume);
  if (absl::Status status = calls.Put(start, *composed, &report.done); !status.ok()) return status;
  return report;
}

}  // namespace

absl::StatusOr<PutReport> PutTree(SnapshotCalls& calls, FetchedTokenizer& tokenizer,
                                  const PutAsk& ask, const RememberedDirectory& settings) {
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<PutReport> report = absl::AbortedError("not tried");
  for (int attempt = 0; attempt < kPutsMax && absl::IsAborted(report.status()); ++attempt) {
    report = PutOnce(calls, tokenizer, ask, settings);
  }
  if (report.ok()) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    report->elapsed_s = elapsed.count();
  }
  return report;
}

}  // namespace deltafill::client
