// PutSnapshot: prefills a snapshot's tokens from the deepest stored boundary and holds the states.
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/front/elapsed.h"
#include "coordinator/front/model_choice.h"
#include "coordinator/front/prefill_messages.h"
#include "coordinator/front/prefill_run.h"
#include "coordinator/front/request_check.h"
#include "coordinator/snapshots/checkpoint_plan.h"
#include "coordinator/snapshots/snapshot_operations.h"
#include "coordinator/snapshots/stored_snapshot.h"
#include "proto/snapshot.pb.h"

namespace deltafill::coordinator {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSavesMax = 3;  // of one record whose states were evicted meanwhile

// Passes the run's events on, and remembers the states that are there.
class EventWriter final : public PrefillListener {
 public:
  EventWriter(uint64_t tokens, const SendEvent<v1::PutSnapshotEvent>& send)
      : tokens_(tokens), send_(send) {}

  absl::Status OnAccepted(uint64_t cached_tokens, const std::string& miss_reason,
                          const PlanSummary& plan) override {
    v1::PutSnapshotEvent event;
    FillAccepted(tokens_, cached_tokens, miss_reason, plan, event.mutable_accepted());
    return Write(event);
  }

  absl::Status OnProgress(const ProgressReport& report, uint32_t attempt) override {
    v1::PutSnapshotEvent event;
    FillProgress(tokens_, report, attempt, event.mutable_progress());
    return Write(event);
  }

  absl::Status OnCheckpoint(const RequestedBoundary&, const PublishedState& state) override {
    states[state.boundary] = state;
    return absl::OkStatus();
  }

  absl::Status OnLogits(const std::string&) override { return absl::OkStatus(); }

  std::map<uint64_t, PublishedState> states;  // by boundary

 private:
  absl::Status Write(const v1::PutSnapshotEvent& event) {
    return send_(event) ? absl::OkStatus() : absl::CancelledError("the caller is gone");
  }

  const uint64_t tokens_;
  const SendEvent<v1::PutSnapshotEvent>& send_;
};

// The stored boundaries of a prompt, ascending; the newest kSnapshotCheckpointsMax of them.
absl::StatusOr<std::vector<uint64_t>> FindStoredBoundaries(StateStore& store,
                                                           const KeyedPrompt& prompt) {
  std::vector<uint64_t> found;
  size_t length = FinalBoundary(prompt.TokenCount()) / kBlockTokenCount;
  while (length > 0 && found.size() < kSnapshotCheckpointsMax) {
    absl::StatusOr<FindResult> deepest =
        store.FindDeepest(prompt.tenant, std::span(prompt.chain).first(length), kBlockTokenCount,
                          /*verify=*/false);
    if (!deepest.ok()) return deepest.status();
    if (!deepest->manifest.has_value()) break;
    found.push_back(deepest->manifest->boundary);
    length = deepest->chain_index;
  }
  std::reverse(found.begin(), found.end());
  return found;
}

// Where a checkpoint may be and where first changes are expected. Before `resume` only what is
// stored already: a new checkpoint there would be computed anew from before it.
struct PlanInput {
  std::vector<uint64_t> candidates;
  std::vector<FirstChange> changes;
};

PlanInput MakePlanInput(const v1::StoredSnapshot& snapshot, const std::vector<uint64_t>& stored,
                        uint64_t tokens) {
  PlanInput input;
  input.candidates = stored;
  const uint64_t resume = stored.empty() ? 0 : stored.back();
  uint64_t begin = snapshot.header_tokens();
  for (const v1::SnapshotSegment& segment : snapshot.segments()) {
    const uint64_t pieces = (segment.tokens() + kCheckpointSpacing - 1) / kCheckpointSpacing;
    for (uint64_t piece = 0; piece < pieces; ++piece) {
      const uint64_t from = begin + piece * kCheckpointSpacing;
      const uint64_t to = std::min(from + kCheckpointSpacing, begin + segment.tokens());
      const uint64_t boundary = FloorToBlock(from);
      const bool fits = boundary > resume && boundary < FinalBoundary(tokens);
      if (fits && (input.candidates.empty() || boundary > input.candidates.back())) {
        input.candidates.push_back(boundary);
      }
      const double share = static_cast<double>(to - from) / static_cast<double>(segment.tokens());
      input.changes.push_back({from + (to - from) / 2, segment.first_change() * share});
    }
    begin += segment.tokens();
  }
  return input;
}

class SnapshotPut {
 public:
  SnapshotPut(FrontContext& context, const Call& call, MeasuredSpeed& speed, SnapshotUpload upload,
              const SendEvent<v1::PutSnapshotEvent>& send)
      : context_(context), call_(call), speed_(speed), upload_(std::move(upload)), send_(send) {}

  absl::Status Run();

 private:
  absl::Status CheckReplaced();
  absl::StatusOr<PrefillAsk> PlanCheckpoints(const KeyedPrompt& prompt) const;
  LoadedSnapshot Compose(const KeyedPrompt& prompt, const PrefillOutcome& outcome,
                         const std::map<uint64_t, PublishedState>& states);
  absl::Status Save(LoadedSnapshot* snapshot) const;
  absl::Status SaveVersion(const LoadedSnapshot& snapshot) const;

  FrontContext& context_;
  const Call& call_;
  MeasuredSpeed& speed_;
  SnapshotUpload upload_;
  const SendEvent<v1::PutSnapshotEvent>& send_;
  int64_t created_unix_ms_ = UnixMilliseconds();
};

// Before anything is computed; saving checks again.
absl::Status SnapshotPut::CheckReplaced() {
  const absl::StatusOr<LoadedSnapshot> old =
      LoadSnapshot(context_.store, call_.tenant, upload_.start->name());
  const uint64_t replaced = upload_.start->replaced_revision();
  if (replaced == 0) {
    if (absl::IsNotFound(old.status()) || absl::IsDataLoss(old.status())) return absl::OkStatus();
    if (!old.ok()) return old.status();
    return absl::AlreadyExistsError(
        absl::StrCat("name: snapshot ", old->name, " is there already; update it or delete it"));
  }
  if (!old.ok()) return old.status();
  if (old->revision != replaced) {
    return absl::AbortedError("replaced_revision: the snapshot was changed meanwhile");
  }
  created_unix_ms_ = old->summary->created_unix_ms();
  return absl::OkStatus();
}

absl::StatusOr<PrefillAsk> SnapshotPut::PlanCheckpoints(const KeyedPrompt& prompt) const {
  std::vector<uint64_t> stored;
  if (!upload_.start->no_resume()) {
    absl::StatusOr<std::vector<uint64_t>> found = FindStoredBoundaries(context_.store, prompt);
    if (!found.ok()) return found.status();
    stored = *std::move(found);
  }
  const PlanInput input = MakePlanInput(*upload_.stored, stored, prompt.TokenCount());
  const uint64_t budget = upload_.start->checkpoint_bytes_max() == 0
                              ? kCheckpointBytesDefault
                              : upload_.start->checkpoint_bytes_max();
  CheckpointPrices prices;
  prices.seconds_per_token = speed_;
  prices.seconds_per_byte = kWorthSecondsPerByte;
  prices.state_bytes = std::max<uint64_t>(prompt.model.state_bytes, 1);
  prices.count_max = std::min<uint64_t>(budget / prices.state_bytes, kSnapshotCheckpointsMax);
  PrefillAsk ask;
  for (uint64_t boundary : ChooseCheckpoints(input.candidates, input.changes, prices)) {
    ask.requested.push_back({boundary, boundary});
  }
  ask.no_resume = upload_.start->no_resume();
  return ask;
}

LoadedSnapshot SnapshotPut::Compose(const KeyedPrompt& prompt, const PrefillOutcome& outcome,
                                    const std::map<uint64_t, PublishedState>& states) {
  LoadedSnapshot snapshot;
  snapshot.name = upload_.start->name();
  snapshot.revision = upload_.start->replaced_revision();
  v1::SnapshotSummary& summary = *snapshot.summary;
  summary.set_model(prompt.model.name);
  summary.set_numerics(prompt.model.numerics);
  summary.set_tokens(prompt.TokenCount());
  summary.set_files(static_cast<uint32_t>(upload_.stored->segments_size()));
  summary.set_commit(upload_.start->commit());
  summary.set_created_unix_ms(created_unix_ms_);
  summary.set_updated_unix_ms(UnixMilliseconds());
  *snapshot.stored = std::move(*upload_.stored);
  v1::StoredSnapshot& stored = *snapshot.stored;
  stored.set_fingerprint(std::string(prompt.model.fingerprint.view()));
  stored.set_boundary(outcome.final_state.boundary);
  stored.set_state(std::string(outcome.final_state.state.view()));
  stored.set_resumed_at(outcome.cached_tokens);
  const std::vector<uint32_t> tail = prompt.TokensBetween(stored.boundary(), prompt.TokenCount());
  stored.mutable_tail()->Add(tail.begin(), tail.end());
  std::map<uint64_t, PublishedState> held = states;
  if (stored.boundary() > 0) held[stored.boundary()] = outcome.final_state;
  for (const auto& [boundary, state] : held) {
    v1::SnapshotCheckpoint* checkpoint = stored.add_checkpoints();
    checkpoint->set_boundary(boundary);
    checkpoint->set_state(std::string(state.state.view()));
    checkpoint->set_bytes(state.bytes);
  }
  return snapshot;
}

// What was evicted between its computing and now is left out; the snapshot's end must be there.
absl::Status SnapshotPut::Save(LoadedSnapshot* snapshot) const {
  absl::Status status;
  for (int attempt = 0; attempt < kSavesMax; ++attempt) {
    status = SaveSnapshot(context_.store, call_.tenant, snapshot);
    if (!absl::IsFailedPrecondition(status)) return status;
    google::protobuf::RepeatedPtrField<v1::SnapshotCheckpoint> there;
    for (const v1::SnapshotCheckpoint& checkpoint : snapshot->stored->checkpoints()) {
      StateId state;
      StateId::FromBytes(checkpoint.state(), &state);
      if (context_.store.GetManifest(call_.tenant, state).ok()) *there.Add() = checkpoint;
    }
    if (there.empty() || there.rbegin()->boundary() != snapshot->stored->boundary()) break;
    *snapshot->stored->mutable_checkpoints() = std::move(there);
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the snapshot's end was evicted before it could be held; the store's budget is "
                   "too small: ",
                   std::string(status.message())));
}

absl::Status SnapshotPut::SaveVersion(const LoadedSnapshot& snapshot) const {
  LoadedSnapshot version;
  version.name = absl::StrCat(snapshot.name, "@", snapshot.summary->commit());
  *version.summary = *snapshot.summary;
  *version.stored = *snapshot.stored;
  const absl::StatusOr<LoadedSnapshot> old =
      LoadSnapshot(context_.store, call_.tenant, version.name);
  if (old.ok()) version.revision = old->revision;
  return Save(&version);
}

absl::Status SnapshotPut::Run() {
  const auto start = Clock::now();
  if (absl::Status status = CheckReplaced(); !status.ok()) return status;
  absl::StatusOr<ServedModel> model = ChooseModel(context_.engine.Models(), upload_.start->model());
  if (!model.ok()) return model.status();
  if (absl::Status status = CheckTokens(upload_.tokens, *model, "tokens"); !status.ok()) {
    return status;
  }
  const uint64_t tokens = upload_.tokens.size();
  if (absl::Status status = CheckPositions(tokens, 0, *model); !status.ok()) return status;
  absl::StatusOr<TenantSalt> salt = context_.salts.Get(call_.tenant);
  if (!salt.ok()) return salt.status();
  const KeyedPrompt prompt =
      KeyWholePrompt(call_.tenant, *std::move(model), *salt, std::move(upload_.tokens));
  absl::StatusOr<PrefillAsk> ask = PlanCheckpoints(prompt);
  if (!ask.ok()) return ask.status();
  EventWriter writer(tokens, send_);
  absl::StatusOr<PrefillOutcome> outcome =
      PrefillRun(context_.store, context_.engine, prompt, *ask, writer, call_.cancelled).Run();
  if (!outcome.ok()) return outcome.status();
  if (outcome->work.tokens_computed >= kMeasuredTokensMin && outcome->work.compute_s > 0) {
    speed_ = outcome->work.compute_s / static_cast<double>(outcome->work.tokens_computed);
  }

  LoadedSnapshot snapshot = Compose(prompt, *outcome, writer.states);
  const bool has_version = !snapshot.summary->commit().empty() && upload_.start->versions_max() > 0;
  // The version first, so that what the name's last revision holds is held until it is there.
  if (has_version) {
    if (absl::Status status = SaveVersion(snapshot); !status.ok()) return status;
  }
  if (absl::Status status = Save(&snapshot); !status.ok()) return status;
  absl::StatusOr<uint64_t> freed =
      TrimVersions(context_.store, call_.tenant, snapshot.name, upload_.start->versions_max());
  if (!freed.ok()) return freed.status();

  v1::PutSnapshotEvent last;
  v1::PutSnapshotDone* done = last.mutable_done();
  DescribeSnapshot(snapshot, /*with_segments=*/false, done->mutable_snapshot());
  done->set_reused_tokens(outcome->cached_tokens);
  done->set_recomputed_tokens(outcome->work.tokens_computed);
  done->set_miss_reason(outcome->miss_reason);
  done->set_freed_states(*freed);
  FillTimings(*outcome, SecondsSince(start), done->mutable_timings());
  return send_(last) ? absl::OkStatus() : absl::CancelledError("the caller is gone");
}

}  // namespace

absl::Status PutSnapshot(FrontContext& context, const Call& call, MeasuredSpeed& speed,
                         const ReceiveRequest& receive,
                         const SendEvent<v1::PutSnapshotEvent>& send) {
  absl::StatusOr<SnapshotUpload> upload = ReadUpload(receive);
  if (!upload.ok()) return upload.status();
  return SnapshotPut(context, call, speed, *std::move(upload), send).Run();
}

}  // namespace deltafill::coordinator
