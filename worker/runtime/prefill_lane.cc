#include "worker/runtime/prefill_lane.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/lane.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/command_checks.h"
#include "worker/runtime/finite_scan.h"
#include "worker/runtime/first_range.h"
#include "worker/runtime/latent_pieces.h"
#include "worker/runtime/memory_plan.h"
#include "worker/runtime/range_port.h"
#include "worker/runtime/state_parts.h"

namespace deltafill::worker {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kProgressPause{100};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrefillLane>> PrefillLane::Create(
    const LaneParts& parts, const PrefillLaneOptions& options) {
  DELTAFILL_TRY(CheckWholeBlocks("range_tokens_max", options.range_tokens_max));
  if (options.threads < 1) return absl::InvalidArgumentError("threads: must be at least 1");
  std::unique_ptr<PrefillLane> lane(new PrefillLane(parts, options));
  DELTAFILL_TRY(lane->Prepare());
  lane->thread_ = std::thread([lane = lane.get()] { lane->Main(); });
  return lane;
}

PrefillLane::PrefillLane(const LaneParts& parts, const PrefillLaneOptions& options)
    : parts_(parts), options_(options), layout_(parts.model->state_layout()) {}

PrefillLane::~PrefillLane() {
  queue_.CloseAndClear();
  if (thread_.joinable()) thread_.join();
}

absl::Status PrefillLane::Prepare() {
  kernels::Backend& backend = parts_.model->backend();
  DELTAFILL_TRY(PartHeaders(layout_, kBlockTokenCount).status());
  captures_ = std::make_unique<StatePool>(
      &backend, layout_.bytes, CapturedStates(options_.capture_bytes_max, layout_.bytes));
  scratch_ = std::make_unique<StatePool>(&backend, layout_.bytes, kRangeStates);
  DELTAFILL_TRY_ASSIGN(incoming, scratch_->TryAcquire());
  DELTAFILL_TRY_ASSIGN(outgoing, scratch_->TryAcquire());
  DELTAFILL_TRY_ASSIGN(lane, parts_.model->NewLane(options_.threads, options_.range_tokens_max));
  incoming_ = std::move(incoming);
  outgoing_ = std::move(outgoing);
  lane_ = std::move(lane);
  port_lane_ = {&layout_, &lane_->operators(), parts_.exchange};
  return backend.is_host_memory() ? absl::OkStatus() : PrepareDevice();
}

absl::Status PrefillLane::PrepareDevice() {
  kernels::Backend& backend = parts_.model->backend();
  device_buffers_ = std::make_unique<BufferPool>(&backend, BufferPool::Place::kBackend);
  host_buffers_ = std::make_unique<BufferPool>(&backend, BufferPool::Place::kHost);
  hand_over_ = std::make_unique<HandOver>(parts_.exchange);
  // Page-locking takes longer than reading: once, at start.
  DELTAFILL_TRY_ASSIGN(start_staged, host_buffers_->Acquire(layout_.bytes));
  start_staged_ = std::move(start_staged);
  DELTAFILL_TRY(host_buffers_->Prepare(PieceBytesMax(layout_.latents)));
  port_lane_.device_buffers = device_buffers_.get();
  port_lane_.host_buffers = host_buffers_.get();
  port_lane_.hand_over = hand_over_.get();
  LatentCache latents(&backend, &layout_.latents);
  return RunFirstRange(*parts_.model, *lane_, port_lane_, options_.range_tokens_max, outgoing_,
                       latents);
}

void PrefillLane::Run(RangeCommand command) {
  AttemptFlagRef flag = parts_.attempts->Enter(command.attempt);
  if (flag->aborted()) return;
  if (command.source.from == StateSource::From::kPeer) {
    absl::Status status = parts_.exchange->Reserve(command.attempt, command.range);
    if (!status.ok()) {
      parts_.attempts->Fail(command.attempt, status);
      return;
    }
  }
  pending_.fetch_add(1, std::memory_order_acq_rel);
  if (!queue_.Push({std::move(command), std::move(flag)})) {
    pending_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

void PrefillLane::Main() {
  while (std::optional<Queued> queued = queue_.Pop()) {
    if (!queued->flag->aborted()) RunRange(*queued);
    // Aborted meanwhile: what was opened since is dropped here, what was before by the abort.
    if (queued->flag->aborted()) parts_.latents->Drop(queued->command.attempt);
    parts_.exchange->Release(queued->command.attempt, queued->command.range);
    pending_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

void PrefillLane::RunRange(const Queued& queued) {
  Failure failure;
  absl::Status status = Validate(queued.command);
  if (status.ok()) status = RunPasses(queued, &failure);
  if (!status.ok()) {
    parts_.attempts->Fail(queued.command.attempt, status, failure.stored_state_lost,
                          failure.peer_lost);
  }
}

absl::Status PrefillLane::Validate(const RangeCommand& command) const {
  DELTAFILL_TRY(
      CheckTokens(command.first_token, command.tokens, parts_.model->config().vocab_size));
  if (command.tokens.size() > static_cast<size_t>(options_.range_tokens_max)) {
    return absl::InvalidArgumentError(absl::StrCat("tokens: ", command.tokens.size(),
                                                   " in a range, the limit is ",
                                                   options_.range_tokens_max));
  }
  if (command.hand_on && command.tokens.size() % kBlockTokenCount != 0) {
    return absl::InvalidArgumentError("tokens: a range that hands on must have a multiple of 64");
  }
  uint64_t before = command.first_token;
  for (const BoundaryWanted& wanted : command.boundaries) {
    if (wanted.boundary <= before || wanted.boundary % kBlockTokenCount != 0 ||
        wanted.boundary > command.first_token + command.tokens.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "boundaries: ", wanted.boundary, " must ascend in multiples of 64 inside the range"));
    }
    before = wanted.boundary;
  }
  return layout_.latents.layers.empty() ? absl::OkStatus() : ValidateLatents(command);
}

absl::Status PrefillLane::ValidateLatents(const RangeCommand& command) const {
  const RangeLatents& latents = command.latents;
  const uint64_t end = command.first_token + command.tokens.size();
  if (latents.attempt_start > command.first_token || latents.attempt_end < end) {
    return absl::InvalidArgumentError(absl::StrCat("latents: the range is not in the attempt's [",
                                                   latents.attempt_start, ", ", latents.attempt_end,
                                                   ")"));
  }
  if (command.hand_on && latents.next_holds > end) {
    return absl::InvalidArgumentError(
        absl::StrCat("latents.next_holds: is ", latents.next_holds, ", past the range's end"));
  }
  uint64_t before = command.first_token;
  for (uint64_t piece : latents.pieces) {
    if (piece <= before || piece % kLatentPieceTokens != 0 || piece > end) {
      return absl::InvalidArgumentError(absl::StrCat("latents.pieces: ", piece,
                                                     " must ascend in multiples of ",
                                                     kLatentPieceTokens, " inside the range"));
    }
    before = piece;
  }
  return absl::OkStatus();
}

std::vector<PrefillLane::Pass> PrefillLane::Plan(const RangeCommand& command) const {
  // One buffer less than there are: the state a pass starts from may still wait to be saved.
  const size_t captures_max = captures_->capacity() - 1;
  const uint64_t end = command.first_token + command.tokens.size();
  std::vector<Pass> passes(1);
  passes.back().first_token = command.first_token;
  for (const BoundaryWanted& wanted : command.boundaries) {
    if (passes.back().boundaries.size() == captures_max) {
      const uint64_t cut = passes.back().boundaries.back().boundary;
      passes.back().token_count = cut - passes.back().first_token;
      passes.emplace_back().first_token = cut;
    }
    passes.back().boundaries.push_back(wanted);
  }
  passes.back().token_count = end - passes.back().first_token;
  return passes;
}

absl::StatusOr<PrefillLane::Progress> PrefillLane::Begin(const Queued& queued, Failure* failure) {
  const RangeCommand& command = queued.command;
  Progress progress;
  progress.reported = Clock::now();
  progress.incoming = incoming_;
  if (command.source.from == StateSource::From::kPeer) progress.source = RangePass::Source::kPeer;
  if (command.source.from == StateSource::From::kStored) {
    absl::Status status = LoadStart(command, &progress);
    failure->stored_state_lost = absl::IsDataLoss(status);
    if (!status.ok()) return status;
  }
  if (!layout_.latents.layers.empty()) DELTAFILL_TRY(OpenLatents(queued, &progress, failure));
  return progress;
}

absl::Status PrefillLane::LoadStart(const RangeCommand& command, Progress* progress) {
  std::byte* const to = start_staged_ != nullptr ? start_staged_.get() : incoming_->bytes();
  DELTAFILL_TRY_ASSIGN(stored, StoredState::Begin(*parts_.store, command.source.parts, layout_,
                                                  command.first_token, to));
  progress->stored = std::move(stored);
  progress->source = RangePass::Source::kStored;
  return absl::OkStatus();
}

absl::Status PrefillLane::OpenLatents(const Queued& queued, Progress* progress, Failure* failure) {
  const RangeCommand& command = queued.command;
  const RangeLatents& wanted = command.latents;
  std::shared_ptr<SequenceLatents> latents = parts_.latents->Open(command.attempt);
  const auto before_claim = Clock::now();
  DELTAFILL_TRY(latents->ClaimWhenFree(wanted.attempt_end, kLatentRoomWait,
                                       [&] { return queued.flag->aborted(); }));
  progress->stalled_s += SecondsSince(before_claim);
  if (latents->held_tokens == 0 && wanted.attempt_start > 0) {
    DELTAFILL_TRY(latents->Reserve(wanted.attempt_start));
    absl::Status status =
        LoadLatents(*parts_.store, wanted.stored, layout_.latents, wanted.attempt_start,
                    lane_->operators(), host_buffers_.get(), latents->cache());
    failure->stored_state_lost = absl::IsDataLoss(status);
    if (!status.ok()) return status;
    latents->held_tokens = wanted.attempt_start;
  }
  if (latents->held_tokens > command.first_token ||
      (latents->held_tokens < command.first_token &&
       progress->source != RangePass::Source::kPeer)) {
    return absl::InternalError(absl::StrCat("latents: this worker holds ", latents->held_tokens,
                                            " tokens, the range starts at ", command.first_token));
  }
  DELTAFILL_TRY(latents->Reserve(command.first_token + command.tokens.size()));
  progress->latents = std::move(latents);
  return absl::OkStatus();
}

absl::Status PrefillLane::RunPasses(const Queued& queued, Failure* failure) {
  const RangeCommand& command = queued.command;
  const auto start = Clock::now();
  DELTAFILL_TRY_ASSIGN(progress, Begin(queued, failure));
  const std::vector<Pass> passes = Plan(command);
  for (size_t i = 0; i < passes.size(); ++i) {
    DELTAFILL_TRY(RunPass(queued, passes[i], i + 1 == passes.size(), &progress, failure));
  }
  if (queued.flag->aborted()) return absl::CancelledError("aborted");
  if (progress.latents != nullptr && !command.latents.keep) parts_.latents->Drop(command.attempt);
  parts_.sink->Emit(RangeDone{
      command.attempt, command.range, SecondsSince(start) - progress.wait_s - progress.stalled_s,
      progress.wait_s, progress.stored == nullptr ? 0.0 : progress.stored->wait_s()});
  return absl::OkStatus();
}

absl::Status PrefillLane::RunPass(const Queued& queued, const Pass& pass, bool is_last,
                                  Progress* progress, Failure* failure) {
  const RangeCommand& command = queued.command;
  const auto before_acquire = Clock::now();
  Captures captures;
  DELTAFILL_TRY(Acquire(queued, pass, is_last, &captures));
  progress->stalled_s += SecondsSince(before_acquire);

  RangePass range_pass{command.attempt,  command.range,      queued.flag,
                       progress->source, progress->incoming, progress->stored.get()};
  if (is_last && command.hand_on) {
    range_pass.outgoing = outgoing_;
    range_pass.next = &command.next;
    range_pass.next_holds = command.latents.next_holds;
  }
  range_pass.captures = captures.states;
  range_pass.first_token = pass.first_token;
  range_pass.token_count = pass.token_count;
  if (progress->latents != nullptr) {
    range_pass.latents = &progress->latents->cache();
    range_pass.held = progress->latents->held_tokens;
  }
  RangePort port(port_lane_, std::move(range_pass), [&](uint32_t layers_done) {
    if (Clock::now() - progress->reported < kProgressPause) return;
    progress->reported = Clock::now();
    parts_.sink->Emit(RangeProgress{command.attempt, command.range, is_last ? layers_done : 0});
  });
  const std::span<const uint32_t> tokens(command.tokens);
  const RangeWork work{tokens.subspan(pass.first_token - command.first_token, pass.token_count),
                       captures.offsets, &port};
  absl::Status status = parts_.model->Prefill(*lane_, {&work, 1});
  if (status.ok() && is_last && command.last_logits) status = SendLogits(queued);
  status.Update(port.Finish());
  progress->wait_s += port.wait_s();
  failure->peer_lost = port.peer_lost();
  failure->stored_state_lost = absl::IsDataLoss(status);
  if (!status.ok()) return status;
  progress->source = RangePass::Source::kBuffer;
  if (!is_last) progress->incoming = captures.states.back();
  if (progress->latents != nullptr) {
    progress->latents->held_tokens = pass.end();
    SavePieces(queued, pass, *progress->latents);
  }
  Save(queued, std::move(captures), progress->latents.get());
  return absl::OkStatus();
}

absl::Status PrefillLane::Acquire(const Queued& queued, const Pass& pass, bool is_last,
                                  Captures* captures) {
  for (const BoundaryWanted& wanted : pass.boundaries) {
    DELTAFILL_TRY_ASSIGN(state, captures_->TryAcquire());
    // The next pass starts from the last boundary of this one: that must not be skipped.
    const bool needed = !is_last && wanted.boundary == pass.boundaries.back().boundary;
    if (state == nullptr && wanted.recovery && !needed) {
      parts_.sink->Emit(BoundaryStored{queued.command.attempt, wanted.boundary, {}, true});
      continue;
    }
    if (state == nullptr) {
      const auto before = Clock::now();
      absl::StatusOr<StateBufferRef> waited = captures_->Acquire(*queued.flag);
      stall_s_.fetch_add(SecondsSince(before));
      if (!waited.ok()) return waited.status();
      state = *std::move(waited);
    }
    captures->boundaries.push_back(wanted);
    captures->states.push_back(std::move(state));
    captures->offsets.push_back(static_cast<int64_t>(wanted.boundary - pass.first_token));
  }
  return absl::OkStatus();
}

absl::Status PrefillLane::SendLogits(const Queued& queued) {
  std::vector<float> logits(static_cast<size_t>(parts_.model->config().vocab_size));
  DELTAFILL_TRY(parts_.model->LastLogits(*lane_, logits));
  DELTAFILL_TRY(CheckLogitsFinite(logits, "last logits"));
  parts_.sink->Emit(LastLogits{queued.command.attempt, std::move(logits)});
  return absl::OkStatus();
}

void PrefillLane::Save(const Queued& queued, Captures captures, const SequenceLatents* latents) {
  for (size_t i = 0; i < captures.states.size(); ++i) {
    const AttemptKey attempt = queued.command.attempt;
    const BoundaryWanted wanted = captures.boundaries[i];
    auto done = [attempt, wanted, attempts = parts_.attempts,
                 sink = parts_.sink](absl::StatusOr<std::vector<PartReceipt>> receipts) {
      if (receipts.ok()) {
        sink->Emit(BoundaryStored{attempt, wanted.boundary, *std::move(receipts), false});
      } else if (wanted.recovery && !absl::IsInternal(receipts.status()) &&
                 !absl::IsCancelled(receipts.status())) {
        sink->Emit(BoundaryStored{attempt, wanted.boundary, {}, true});
      } else {
        attempts->Fail(attempt, receipts.status());
      }
    };
    SaveRequest request{queued.flag, queued.command.tenant, wanted.boundary,
                        std::move(captures.states[i])};
    if (latents != nullptr && wanted.boundary % kLatentPieceTokens != 0) {
      request.pieces.push_back(TakePiece(*latents, wanted.boundary));
    }
    request.done = std::move(done);
    parts_.saver->Save(std::move(request));
  }
}

// The whole pieces that end in the pass and were asked for.
void PrefillLane::SavePieces(const Queued& queued, const Pass& pass,
                             const SequenceLatents& latents) {
  const AttemptKey attempt = queued.command.attempt;
  for (uint64_t end : queued.command.latents.pieces) {
    if (end <= pass.first_token || end > pass.end()) continue;
    SaveRequest request{queued.flag, queued.command.tenant, end};
    request.pieces.push_back(TakePiece(latents, end));
    request.done = [attempt, end, attempts = parts_.attempts,
                    sink = parts_.sink](absl::StatusOr<std::vector<PartReceipt>> receipts) {
      if (receipts.ok()) {
        sink->Emit(LatentPieceStored{attempt, end, receipts->front()});
      } else {
        attempts->Fail(attempt, receipts.status());
      }
    };
    parts_.saver->Save(std::move(request));
  }
}

}  // namespace deltafill::worker
