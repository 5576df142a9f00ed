#include "worker/runtime/prefill_lane.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"
#include "worker/runtime/command_checks.h"
#include "worker/runtime/finite_scan.h"
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
  if (options.range_tokens_max < kBlockTokenCount ||
      options.range_tokens_max % kBlockTokenCount != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "range_tokens_max: is ", options.range_tokens_max, ", must be a positive multiple of 64"));
  }
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
  if (!backend.is_host_memory()) {
    return absl::UnimplementedError("prefill lane: boundary states in device memory");
  }
  DELTAFILL_TRY(PartHeaders(layout_, kBlockTokenCount).status());
  const size_t fitting = options_.capture_bytes_max / std::max<size_t>(layout_.bytes, 1);
  captures_ = std::make_unique<StatePool>(&backend, layout_.bytes, std::max<size_t>(fitting, 2));
  scratch_ = std::make_unique<StatePool>(&backend, layout_.bytes, 2);
  DELTAFILL_TRY_ASSIGN(incoming, scratch_->TryAcquire());
  DELTAFILL_TRY_ASSIGN(outgoing, scratch_->TryAcquire());
  DELTAFILL_TRY_ASSIGN(lane, parts_.model->NewLane(options_.threads, options_.range_tokens_max));
  incoming_ = std::move(incoming);
  outgoing_ = std::move(outgoing);
  lane_ = std::move(lane);
  return absl::OkStatus();
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
    parts_.exchange->Release(queued->command.attempt, queued->command.range);
    pending_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

void PrefillLane::RunRange(const Queued& queued) {
  bool peer_lost = false;
  bool stored_state_lost = false;
  absl::Status status = Validate(queued.command);
  if (status.ok()) status = RunPasses(queued, &peer_lost, &stored_state_lost);
  if (!status.ok()) {
    parts_.attempts->Fail(queued.command.attempt, status, stored_state_lost, peer_lost);
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

absl::Status PrefillLane::RunPasses(const Queued& queued, bool* peer_lost,
                                    bool* stored_state_lost) {
  const RangeCommand& command = queued.command;
  const auto start = Clock::now();
  RangePass::Source source = RangePass::Source::kZero;
  if (command.source.from == StateSource::From::kPeer) source = RangePass::Source::kPeer;
  if (command.source.from == StateSource::From::kStored) {
    source = RangePass::Source::kBuffer;
    absl::Status status = LoadPrefixState(*parts_.store, command.source.parts, layout_,
                                          command.first_token, incoming_->bytes());
    *stored_state_lost = absl::IsDataLoss(status);
    if (!status.ok()) return status;
  }
  StateBufferRef incoming = incoming_;
  double wait_s = 0;
  double stalled_s = 0;
  auto reported = Clock::now();
  const std::vector<Pass> passes = Plan(command);
  for (size_t i = 0; i < passes.size(); ++i) {
    const bool is_last = i + 1 == passes.size();
    const auto before_acquire = Clock::now();
    Captures captures;
    DELTAFILL_TRY(Acquire(queued, passes[i], is_last, &captures));
    stalled_s += SecondsSince(before_acquire);

    RangePass pass{command.attempt, command.range, queued.flag, source, incoming};
    if (is_last && command.hand_on) {
      pass.outgoing = outgoing_;
      pass.next = &command.next;
    }
    pass.captures = captures.states;
    RangePort port(&layout_, parts_.exchange, std::move(pass), [&](uint32_t layers_done) {
      if (!is_last || Clock::now() - reported < kProgressPause) return;
      reported = Clock::now();
      parts_.sink->Emit(RangeProgress{command.attempt, command.range, layers_done});
    });
    const std::span<const uint32_t> tokens(command.tokens);
    const RangeWork work{
        tokens.subspan(passes[i].first_token - command.first_token, passes[i].token_count),
        captures.offsets, &port};
    absl::Status status = parts_.model->Prefill(*lane_, {&work, 1});
    wait_s += port.wait_s();
    *peer_lost = port.peer_lost();
    if (!status.ok()) return status;
    if (is_last && command.last_logits) DELTAFILL_TRY(SendLogits(queued));
    source = RangePass::Source::kBuffer;
    if (!is_last) incoming = captures.states.back();
    Save(queued, std::move(captures));
  }
  if (queued.flag->aborted()) return absl::CancelledError("aborted");
  parts_.sink->Emit(
      RangeDone{command.attempt, command.range, SecondsSince(start) - wait_s - stalled_s, wait_s});
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

void PrefillLane::Save(const Queued& queued, Captures captures) {
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
    parts_.saver->Save({queued.flag,
                        queued.command.tenant,
                        wanted.boundary,
                        std::move(captures.states[i]),
                        {},
                        std::move(done)});
  }
}

}  // namespace deltafill::worker
