// snapshot create and update: reads the tree, composes its tokens, sends them.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/byte_size.h"
#include "client/commands.h"
#include "client/messages.h"
#include "client/snapshot/put_run.h"
#include "client/snapshot/remembered_directory.h"
#include "client/snapshot/snapshot_calls.h"
#include "client/snapshot/watch_loop.h"

namespace deltafill::client {
namespace {

absl::StatusOr<RememberedDirectory> SettingsOf(const SnapshotPutOptions& options) {
  RememberedDirectory settings;
  settings.directory = options.directory;
  settings.model = options.model;
  settings.tree.plain = options.plain;
  settings.versions_max = options.versions_max;
  absl::StatusOr<uint64_t> bytes = ParseByteSize("--max-file-bytes", options.file_bytes_max);
  if (!bytes.ok()) return bytes.status();
  settings.tree.file_bytes_max = *bytes;
  bytes = ParseByteSize("--checkpoint-budget", options.checkpoint_budget);
  if (!bytes.ok()) return bytes.status();
  settings.checkpoint_bytes_max = *bytes;
  return settings;
}

absl::Status MakeAbsolute(std::string* directory) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::canonical(*directory, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat(*directory, ": ", error.message()));
  *directory = absolute.string();
  return absl::OkStatus();
}

Json LeftOutJson(const std::vector<LeftOut>& left_out) {
  Json list = Json::array();
  for (const LeftOut& each : left_out) {
    list.push_back({{"path", each.path}, {"reason", each.reason}});
  }
  return list;
}

Json ReportJson(const PutReport& report) {
  const v1::SnapshotDescription& snapshot = report.done.snapshot();
  Json boundaries = Json::array();
  for (const auto& checkpoint : snapshot.checkpoints()) boundaries.push_back(checkpoint.boundary());
  Json proposal;
  if (report.proposal) {
    proposal = {{"tokens_saved_per_update", report.proposal->tokens_saved},
                {"tokens_once", report.proposal->tokens_once}};
  }
  return {{"name", snapshot.name()},
          {"state", snapshot.state()},
          {"tokens", snapshot.summary().tokens()},
          {"files", snapshot.summary().files()},
          {"reused_tokens", report.done.reused_tokens()},
          {"recomputed_tokens", report.done.recomputed_tokens()},
          {"miss_reason", report.done.miss_reason()},
          {"changed_files", report.changed_files},
          {"first_changed", report.first_changed},
          {"commit", report.commit},
          {"boundary", snapshot.boundary()},
          {"checkpoints", std::move(boundaries)},
          {"state_bytes", snapshot.summary().state_bytes()},
          {"left_out", LeftOutJson(report.left_out)},
          {"reorder", std::move(proposal)},
          {"elapsed_s", report.elapsed_s},
          {"timings", ToJson(report.done.timings())}};
}

void PrintReport(const PutReport& report) {
  const v1::SnapshotDescription& snapshot = report.done.snapshot();
  const v1::SnapshotSummary& summary = snapshot.summary();
  std::printf(
      "snapshot  %s%s%s\nstate     %s\ntokens    %llu in %u files, %llu reused, %llu "
      "recomputed\nstates    %u, %llu bytes\nelapsed   %.3f s\n",
      snapshot.name().c_str(), report.commit.empty() ? "" : "@", report.commit.c_str(),
      snapshot.state().c_str(), Wide(summary.tokens()), summary.files(),
      Wide(report.done.reused_tokens()), Wide(report.done.recomputed_tokens()), summary.states(),
      Wide(summary.state_bytes()), report.elapsed_s);
  if (!report.first_changed.empty()) {
    std::printf("changed   %u files, the first is %s\n", report.changed_files,
                report.first_changed.c_str());
  }
  for (const LeftOut& left_out : report.left_out) {
    std::fprintf(stderr, "left out  %s: %s\n", left_out.path.c_str(), left_out.reason.c_str());
  }
  if (report.proposal) {
    std::fprintf(stderr,
                 "another order would recompute about %.0f tokens less an update; --reorder "
                 "applies it, once for %llu\n",
                 report.proposal->tokens_saved, Wide(report.proposal->tokens_once));
  }
}

void Report(const SnapshotPutOptions& options, const PutReport& report) {
  if (options.server.json) {
    PrintJson(ReportJson(report));
  } else {
    PrintReport(report);
  }
  std::fflush(stdout);
}

absl::Status WriteTokens(const std::string& path, const PutReport& report) {
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(report.tokens.data()),
             static_cast<std::streamsize>(report.tokens.size() * sizeof(uint32_t)));
  file.close();
  if (file) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--tokens-out ", path, ": cannot write"));
}

PutAsk AskOf(const SnapshotPutOptions& options) {
  PutAsk ask;
  ask.name = options.name;
  ask.order_from = options.order_from;
  ask.no_resume = options.no_resume;
  ask.reorder = options.reorder;
  ask.keep_tokens = !options.tokens_file.empty();
  return ask;
}

}  // namespace

int RunSnapshotCreate(const SnapshotPutOptions& options) {
  SnapshotCalls calls(options.server);
  absl::StatusOr<RememberedDirectory> settings = SettingsOf(options);
  if (!settings.ok()) return calls.Fail(settings.status());
  absl::Status status = MakeAbsolute(&settings->directory);
  if (!status.ok()) return calls.Fail(status);
  PutAsk ask = AskOf(options);
  ask.create = true;
  FetchedTokenizer tokenizer;
  absl::StatusOr<PutReport> report = PutTree(calls, tokenizer, ask, *settings);
  if (!report.ok()) return calls.Fail(report.status());
  status = Remember(options.server, options.name, *settings);
  status.Update(WriteTokens(options.tokens_file, *report));
  Report(options, *report);
  return status.ok() ? 0 : calls.Fail(status);
}

int RunSnapshotUpdate(const SnapshotPutOptions& options) {
  if (options.watch) PrepareWatch();
  SnapshotCalls calls(options.server);
  absl::StatusOr<RememberedDirectory> settings = Recall(options.server, options.name);
  if (!settings.ok() && (options.directory.empty() || !absl::IsNotFound(settings.status()))) {
    return calls.Fail(settings.status());
  }
  if (!settings.ok()) settings = SettingsOf(options);
  if (!settings.ok()) return calls.Fail(settings.status());
  if (!options.directory.empty()) settings->directory = options.directory;
  absl::Status status = MakeAbsolute(&settings->directory);
  if (!status.ok()) return calls.Fail(status);
  if (!options.directory.empty()) {
    status = Remember(options.server, options.name, *settings);
    if (!status.ok()) return calls.Fail(status);
  }
  const PutAsk ask = AskOf(options);
  if (options.watch) {
    return WatchTree(calls, ask, *settings, options.settle_s,
                     [&](const PutReport& report) { Report(options, report); });
  }
  FetchedTokenizer tokenizer;
  absl::StatusOr<PutReport> report = PutTree(calls, tokenizer, ask, *settings);
  if (!report.ok()) return calls.Fail(report.status());
  status = WriteTokens(options.tokens_file, *report);
  Report(options, *report);
  return status.ok() ? 0 : calls.Fail(status);
}

}  // namespace deltafill::client
