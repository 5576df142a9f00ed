#include "worker/runtime/decode_lane.h"

#include <algorithm>
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
#include "worker/runtime/sampler.h"

namespace deltafill::worker {

using Phase = DecodeSequence::Phase;

namespace {

// Fewer are gone through before another thread has woken up.
constexpr size_t kLogitsWorthThreads = size_t{1} << 16;

}  // namespace

absl::StatusOr<std::unique_ptr<DecodeLane>> DecodeLane::Create(const LaneParts& parts,
                                                               const DecodeLaneOptions& options) {
  DELTAFILL_TRY(CheckWholeBlocks("rows_max", options.rows_max));
  if (options.batch_max < 1 || options.batch_max > options.rows_max) {
    return absl::InvalidArgumentError(absl::StrCat("batch_max: is ", options.batch_max,
                                                   ", must be in [1, ", options.rows_max, "]"));
  }
  if (options.threads < 1) return absl::InvalidArgumentError("threads: must be at least 1");
  std::unique_ptr<DecodeLane> lane(new DecodeLane(parts, options));
  DELTAFILL_TRY(lane->Prepare());
  lane->thread_ = std::thread([lane = lane.get()] { lane->Main(); });
  return lane;
}

DecodeLane::DecodeLane(const LaneParts& parts, const DecodeLaneOptions& options)
    : parts_(parts),
      options_(options),
      layout_(parts.model->state_layout()),
      vocabulary_(static_cast<size_t>(parts.model->config().vocab_size)),
      host_buffers_(&parts.model->backend(), BufferPool::Place::kHost),
      team_(std::min(options.threads, options.batch_max)) {}

DecodeLane::~DecodeLane() {
  stopping_.store(true, std::memory_order_release);
  queue_.Close();  // what comes later is dropped
  if (thread_.joinable()) thread_.join();
  start_.reset();
}

absl::Status DecodeLane::Prepare() {
  kernels::Backend& backend = parts_.model->backend();
  const size_t batch_max = static_cast<size_t>(options_.batch_max);
  states_ = std::make_unique<StatePool>(&backend, layout_.bytes, DecodeStates(options_.batch_max));
  DELTAFILL_TRY_ASSIGN(scratch, states_->TryAcquire());
  DELTAFILL_TRY_ASSIGN(lane, parts_.model->NewLane(options_.threads, options_.rows_max));
  scratch_ = std::move(scratch);
  lane_ = std::move(lane);
  port_lane_ = {&layout_, &lane_->operators()};
  const size_t logits = batch_max * vocabulary_;
  DELTAFILL_TRY_ASSIGN(memory, host_buffers_.Acquire(logits * sizeof(float)));
  logits_memory_ = std::move(memory);
  logits_ = {reinterpret_cast<float*>(logits_memory_.get()), logits};
  if (!backend.is_host_memory()) {
    port_lane_.host_buffers = &host_buffers_;
    // What DecodeStart loads through. Page-locking takes longer than reading: once, at start.
    DELTAFILL_TRY(host_buffers_.Prepare(layout_.bytes));
    DELTAFILL_TRY(host_buffers_.Prepare(PieceBytesMax(layout_.latents)));
    DELTAFILL_TRY(RunOnce());
  }
  const auto ready = [this](std::unique_ptr<DecodeSequence> sequence) {
    queue_.Push(std::move(sequence));
  };
  DELTAFILL_TRY_ASSIGN(
      start, DecodeStart::Create(parts_, batch_max, states_.get(), &host_buffers_, ready));
  start_ = std::move(start);
  return absl::OkStatus();
}

// The largest chunk and a step: a device's workspaces are there from then on.
absl::Status DecodeLane::RunOnce() {
  LatentCache latents(&parts_.model->backend(), &layout_.latents);
  DELTAFILL_TRY(
      RunFirstRange(*parts_.model, *lane_, port_lane_, options_.rows_max, scratch_, latents));
  const DecodeRow row{0, static_cast<uint64_t>(options_.rows_max), scratch_->bytes(), &latents};
  return parts_.model->DecodeStep(*lane_, {&row, 1}, logits_.first(vocabulary_));
}

void DecodeLane::Run(DecodeCommand command) {
  DecodeSequence sequence;
  sequence.command = std::move(command);
  Enqueue(std::move(sequence));
}

void DecodeLane::Run(ExportCommand command) {
  DecodeSequence sequence;
  sequence.is_export = true;
  sequence.command.attempt = command.attempt;
  sequence.command.first_token = command.first_token;
  sequence.command.tokens = std::move(command.tokens);
  sequence.command.source = std::move(command.source);
  sequence.command.stored_latents = std::move(command.stored_latents);
  sequence.command.tenant = std::move(command.tenant);
  Enqueue(std::move(sequence));
}

void DecodeLane::Enqueue(DecodeSequence sequence) {
  sequence.flag = parts_.attempts->Enter(sequence.command.attempt);
  if (sequence.flag->aborted()) return;
  sequence.tokens = sequence.command.tokens;
  pending_.fetch_add(1, std::memory_order_acq_rel);
  if (!start_->Push(std::make_unique<DecodeSequence>(std::move(sequence)))) {
    pending_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

void DecodeLane::Fail(DecodeSequence& sequence, const absl::Status& status) {
  sequence.phase = Phase::kDone;
  parts_.attempts->Fail(sequence.command.attempt, status);
}

absl::Status DecodeLane::Advance(DecodeSequence& sequence) {
  if (sequence.phase == Phase::kSaving) return AdvanceSaving(sequence);
  const size_t tail_start = TailStart(sequence.command.tokens.size());
  if (sequence.current.tokens < tail_start) {
    return PrefillChunk(sequence, std::min(static_cast<size_t>(options_.rows_max),
                                           tail_start - sequence.current.tokens));
  }
  return FinishPrompt(sequence);
}

absl::Status DecodeLane::PrefillChunk(DecodeSequence& sequence, size_t count) {
  SequenceState& current = sequence.current;
  RangePass pass;
  pass.attempt = sequence.command.attempt;
  pass.flag = sequence.flag;
  pass.source = current.is_zero ? RangePass::Source::kZero : RangePass::Source::kBuffer;
  pass.incoming = current.buffer;
  pass.outgoing = scratch_;
  if (sequence.latents != nullptr) pass.latents = &sequence.latents->cache();
  pass.first_token = sequence.command.first_token + current.tokens;
  pass.token_count = count;
  RangePort port(port_lane_, std::move(pass));
  const RangeWork work{
      std::span<const uint32_t>(sequence.tokens).subspan(current.tokens, count), {}, &port};
  absl::Status status = parts_.model->Prefill(*lane_, {&work, 1});
  status.Update(port.Finish());
  if (!status.ok()) return status;
  std::swap(current.buffer, scratch_);
  current.is_zero = false;
  current.tokens += count;
  return absl::OkStatus();
}

absl::Status DecodeLane::FinishPrompt(DecodeSequence& sequence) {
  if (sequence.command.save_state) {
    sequence.kept.is_zero = sequence.current.is_zero;
    sequence.kept.tokens = sequence.current.tokens;
    if (!sequence.kept.is_zero) {
      DELTAFILL_TRY(lane_->operators().Copy(sequence.kept.buffer->bytes(),
                                            sequence.current.buffer->bytes(), layout_.bytes));
    }
  }
  DELTAFILL_TRY(PrefillChunk(sequence, sequence.tokens.size() - sequence.current.tokens));
  const std::span<float> logits = logits_.first(vocabulary_);
  DELTAFILL_TRY(parts_.model->LastLogits(*lane_, logits));
  DELTAFILL_TRY(CheckLogitsFinite(logits, "last logits"));
  if (sequence.is_export) {
    SaveExport(sequence, logits);
    return absl::OkStatus();
  }
  parts_.sink->Emit(DecodeReady{sequence.command.attempt});
  sequence.phase = Phase::kDecoding;
  if (sequence.command.max_tokens == 0) {
    Finish(sequence, "length");
    return absl::OkStatus();
  }
  DELTAFILL_TRY_ASSIGN(id, ChooseToken(sequence, logits));
  TakeToken(sequence, id);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> DecodeLane::ChooseToken(const DecodeSequence& sequence,
                                                 std::span<const float> logits) const {
  const DecodeCommand& command = sequence.command;
  const uint64_t position = command.first_token + sequence.tokens.size();
  DELTAFILL_TRY(CheckLogitsFinite(logits, absl::StrCat("token at position ", position).c_str()));
  return SampleToken(logits, command.sampling, position);
}

void DecodeLane::TakeToken(DecodeSequence& sequence, uint32_t id) {
  const DecodeCommand& command = sequence.command;
  sequence.tokens.push_back(id);
  parts_.sink->Emit(DecodeToken{command.attempt, id});
  if (std::find(command.stop_ids.begin(), command.stop_ids.end(), id) != command.stop_ids.end()) {
    Finish(sequence, "stop");
  } else if (sequence.generated() >= command.max_tokens) {
    Finish(sequence, "length");
  }
}

// Going through vocabularies takes longer than a device's step, and its threads are idle by then.
void DecodeLane::ChooseTokens(std::span<DecodeSequence* const> batch,
                              std::span<absl::StatusOr<uint32_t>> ids) {
  const auto choose = [&](int64_t index, int /*thread*/) {
    const size_t i = static_cast<size_t>(index);
    ids[i] = ChooseToken(*batch[i], logits_.subspan(i * vocabulary_, vocabulary_));
  };
  if (batch.size() * vocabulary_ < kLogitsWorthThreads) {
    for (size_t i = 0; i < batch.size(); ++i) choose(static_cast<int64_t>(i), 0);
  } else {
    team_.ParallelFor(static_cast<int64_t>(batch.size()), choose);
  }
}

void DecodeLane::StepBatch() {
  std::vector<DecodeSequence*> batch;
  std::vector<DecodeRow> rows;
  for (std::unique_ptr<DecodeSequence>& sequence : active_) {
    if (sequence->phase != Phase::kDecoding || sequence->flag->aborted()) continue;
    const uint64_t position = sequence->command.first_token + sequence->tokens.size() - 1;
    if (sequence->latents != nullptr) {
      if (absl::Status status = sequence->latents->Reserve(position + 1); !status.ok()) {
        Fail(*sequence, status);
        continue;
      }
    }
    batch.push_back(sequence.get());
    rows.push_back(
        {.token = sequence->tokens.back(),
         .position = position,
         .state = sequence->current.buffer->bytes(),
         .latents = sequence->latents == nullptr ? nullptr : &sequence->latents->cache()});
  }
  if (batch.empty()) return;
  const std::span<float> logits = logits_.first(batch.size() * vocabulary_);
  absl::Status stepped = parts_.model->DecodeStep(*lane_, rows, logits);
  // What was issued before an error must not outlive the states.
  if (!stepped.ok()) (void)lane_->operators().Synchronize();
  std::vector<absl::StatusOr<uint32_t>> ids(batch.size(), uint32_t{0});
  if (stepped.ok()) {
    ChooseTokens(batch, ids);
  } else {
    std::fill(ids.begin(), ids.end(), stepped);
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    if (ids[i].ok()) {
      ++batch[i]->current.tokens;
      TakeToken(*batch[i], *ids[i]);
    } else {
      Fail(*batch[i], ids[i].status());
    }
  }
}

void DecodeLane::Finish(DecodeSequence& sequence, const char* reason) {
  sequence.finish_reason = reason;
  const uint64_t boundary = sequence.command.first_token + TailStart(sequence.tokens.size());
  if (sequence.command.save_state && boundary > 0) {
    sequence.phase = Phase::kSaving;
    std::swap(sequence.current, sequence.kept);
    sequence.kept.buffer.reset();
    return;
  }
  DecodeFinished finished{sequence.command.attempt, reason, sequence.command.save_state, {}};
  finished.saved.attempt = sequence.command.attempt;
  parts_.sink->Emit(std::move(finished));
  sequence.phase = Phase::kDone;
}

absl::Status DecodeLane::AdvanceSaving(DecodeSequence& sequence) {
  const size_t end = TailStart(sequence.tokens.size());
  if (sequence.current.tokens < end) {
    DELTAFILL_TRY(PrefillChunk(
        sequence, std::min(static_cast<size_t>(options_.rows_max), end - sequence.current.tokens)));
  }
  if (sequence.current.tokens == end) SaveDecoded(sequence);
  return absl::OkStatus();
}

// The sequence's state at token `end`, with the pieces of latents that the store need not have.
SaveRequest DecodeLane::Saving(DecodeSequence& sequence, uint64_t end) const {
  SaveRequest request{sequence.flag, sequence.command.tenant, end,
                      std::move(sequence.current.buffer)};
  if (sequence.latents != nullptr) {
    request.pieces = TakePieces(*sequence.latents, sequence.command.first_token, end);
  }
  return request;
}

void DecodeLane::SaveDecoded(DecodeSequence& sequence) {
  const uint64_t boundary = sequence.command.first_token + sequence.current.tokens;
  SaveRequest request = Saving(sequence, boundary);
  request.done = [boundary, attempt = sequence.command.attempt, reason = sequence.finish_reason,
                  attempts = parts_.attempts,
                  sink = parts_.sink](absl::StatusOr<std::vector<PartReceipt>> receipts) {
    if (receipts.ok()) {
      sink->Emit(
          DecodeFinished{attempt, reason, true, {attempt, boundary, *std::move(receipts), false}});
    } else {
      attempts->Fail(attempt, receipts.status());
    }
  };
  parts_.saver->Save(std::move(request));
  sequence.phase = Phase::kDone;
}

void DecodeLane::SaveExport(DecodeSequence& sequence, std::span<const float> logits) {
  SaveRequest request = Saving(sequence, sequence.command.first_token + sequence.tokens.size());
  request.logits.assign(logits.begin(), logits.end());
  request.done = [attempt = sequence.command.attempt, attempts = parts_.attempts,
                  sink = parts_.sink](absl::StatusOr<std::vector<PartReceipt>> receipts) {
    if (receipts.ok()) {
      sink->Emit(ExportReady{attempt, *std::move(receipts)});
    } else {
      attempts->Fail(attempt, receipts.status());
    }
  };
  parts_.saver->Save(std::move(request));
  sequence.phase = Phase::kDone;
}

}  // namespace deltafill::worker
