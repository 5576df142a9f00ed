// One or several workers' lanes over the toy model, an in-memory store and in-process exchanges,
// without coordinator or streams.
#ifndef DELTAFILL_TESTS_TESTING_LANE_FIXTURE_H_
#define DELTAFILL_TESTS_TESTING_LANE_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/fake_model.h"
#include "tests/testing/held_store.h"
#include "tests/testing/random.h"
#include "tests/testing/recording_sink.h"
#include "worker/exchange/exchange_server.h"
#include "worker/exchange/worker_exchange.h"
#include "worker/runtime/attempt_book.h"
#include "worker/runtime/boundary_saver.h"
#include "worker/runtime/decode_lane.h"
#include "worker/runtime/prefill_lane.h"
#include "worker/runtime/state_parts.h"

namespace deltafill::test {

inline std::vector<uint32_t> RandomTokens(uint64_t seed, size_t count, uint32_t vocabulary) {
  Random random(seed);
  std::vector<uint32_t> tokens(count);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random.Integer(0, vocabulary - 1));
  return tokens;
}

// For tests, whose models outlive everything.
inline std::shared_ptr<kernels::Backend> NotOwned(Model* model) {
  return {std::shared_ptr<void>(), &model->backend()};
}

// What a worker is without its agent. remote: peers reach it through a port.
struct LaneBench {
  LaneBench(Model* model, StateStore* store, std::shared_ptr<MailboxRegistry> registry,
            uint32_t number, size_t latent_bytes_max = size_t{1} << 30, bool remote = false)
      : mailbox(std::make_shared<Mailbox>(model->state_layout(), MailboxLimits(), NotOwned(model))),
        exchange(mailbox, std::move(registry), ExchangeLinkLimits(),
                 [](const AttemptKey&, const absl::Status&) {}),
        pool(&model->backend(), &model->state_layout().latents, latent_bytes_max),
        latents(&pool),
        attempts(&exchange, &latents, &sink, &model->backend()),
        saver(store, &model->state_layout(), &model->backend()),
        parts{model, &exchange, store, &saver, &attempts, &latents, &sink} {
    exchange.SetWorker(number);
    if (remote) server = *ExchangeServer::Start("127.0.0.1:0", mailbox);
  }
  ~LaneBench() {
    attempts.AbortAll();
    prefill.reset();
    decode.reset();
  }

  void MakePrefill(const PrefillLaneOptions& options) {
    prefill = *PrefillLane::Create(parts, options);
  }
  void MakeDecode(const DecodeLaneOptions& options) {
    decode = *DecodeLane::Create(parts, options);
  }

  ExchangeTarget Target(uint32_t number) const {
    return {number, server == nullptr ? "" : "127.0.0.1:" + std::to_string(server->port())};
  }

  RecordingSink sink;
  std::shared_ptr<Mailbox> mailbox;
  std::unique_ptr<ExchangeServer> server;
  WorkerExchange exchange;
  LatentPool pool;
  LatentShelf latents;
  AttemptBook attempts;
  BoundarySaver saver;
  LaneParts parts;
  std::unique_ptr<PrefillLane> prefill;
  std::unique_ptr<DecodeLane> decode;
};

// An answer and the state of prompt and answer.
struct SavedAnswer {
  std::vector<uint32_t> tokens;  // the prompt's and the generated ones
  BoundaryStored saved;
};

// From nothing to the last token, whose logits are wanted.
inline RangeCommand LastRange(AttemptKey attempt, std::vector<uint32_t> tokens) {
  RangeCommand command;
  command.attempt = attempt;
  command.tokens = std::move(tokens);
  command.last_logits = true;
  command.tenant = "tenant";
  return command;
}

// From nothing, the state kept.
inline DecodeCommand SavingDecode(const std::vector<uint32_t>& prompt, uint32_t max_tokens) {
  DecodeCommand decode;
  decode.attempt = {1, 1};
  decode.tokens = prompt;
  decode.max_tokens = max_tokens;
  decode.save_state = true;
  decode.tenant = "tenant";
  return decode;
}

// Of the first decoding on this worker; nullopt if it does not end in time.
inline std::optional<SavedAnswer> DecodeAndSave(LaneBench& worker, const DecodeCommand& decode) {
  worker.decode->Run(decode);
  if (!worker.sink.WaitFor<DecodeFinished>()) return std::nullopt;
  SavedAnswer answer{decode.tokens, worker.sink.Of<DecodeFinished>().front().saved};
  for (const DecodeToken& token : worker.sink.Of<DecodeToken>()) {
    answer.tokens.push_back(token.id);
  }
  return answer;
}

// A stored state to start from.
struct WavefrontStart {
  uint64_t boundary = 0;
  std::vector<PartId> parts;
  std::vector<PartId> latents;
};

// What the coordinator would say of latents: range r of `count` goes to worker r mod workers, and
// everybody keeps what it has until its last range.
inline RangeLatents LatentsOfRange(const std::vector<std::pair<uint64_t, uint64_t>>& spans,
                                   size_t r, size_t workers, const WavefrontStart& start) {
  RangeLatents latents;
  latents.attempt_start = start.boundary;
  latents.attempt_end = spans.back().second;
  if (r < workers) latents.stored = start.latents;
  // The next worker's range before that one, if it had any.
  latents.next_holds = r + 1 < workers ? start.boundary : spans[r + 1 - workers].second;
  latents.keep = r + workers < spans.size();
  for (uint64_t end = kLatentPieceTokens; end <= spans[r].second; end += kLatentPieceTokens) {
    if (end > spans[r].first) latents.pieces.push_back(end);
  }
  return latents;
}

// Cuts a prompt into ranges in turn over all workers, wanting states at every `every` tokens and at
// the last boundary, and the last token's logits.
inline void RunWavefront(const std::vector<std::unique_ptr<LaneBench>>& workers, AttemptKey attempt,
                         const std::vector<uint32_t>& tokens, size_t range_tokens, size_t every,
                         const WavefrontStart& start = {}) {
  std::vector<std::pair<uint64_t, uint64_t>> spans;
  for (uint64_t first = start.boundary; first < tokens.size(); first += range_tokens) {
    spans.emplace_back(first, std::min<uint64_t>(tokens.size(), first + range_tokens));
  }
  for (size_t r = 0; r < spans.size(); ++r) {
    const auto [first, end] = spans[r];
    RangeCommand command;
    command.attempt = attempt;
    command.range = static_cast<uint32_t>(r);
    command.first_token = first;
    command.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(first),
                          tokens.begin() + static_cast<std::ptrdiff_t>(end));
    if (r > 0) {
      command.source.from = StateSource::From::kPeer;
    } else if (start.boundary > 0) {
      command.source = {StateSource::From::kStored, start.parts};
    }
    command.hand_on = r + 1 < spans.size();
    const size_t next = (r + 1) % workers.size();
    command.next = workers[next]->Target(static_cast<uint32_t>(next));
    command.last_logits = r + 1 == spans.size();
    command.tenant = "tenant";
    const size_t last_boundary = (tokens.size() - 1) / 64 * 64;
    for (uint64_t boundary = first + 64; boundary <= end; boundary += 64) {
      if (boundary % every == 0 || boundary == last_boundary) {
        command.boundaries.push_back({boundary, false});
      }
    }
    command.latents = LatentsOfRange(spans, r, workers.size(), start);
    workers[r % workers.size()]->prefill->Run(std::move(command));
  }
}

inline std::vector<PartId> IdsOf(const std::vector<PartReceipt>& receipts) {
  std::vector<PartId> ids;
  for (const PartReceipt& receipt : receipts) ids.push_back(receipt.id);
  return ids;
}

// The prefix state that was stored, with gaps zero, as FakeModel::Run gives it.
inline absl::StatusOr<std::vector<std::byte>> StoredState(StateStore& store, const Model& model,
                                                          const std::vector<PartReceipt>& receipts,
                                                          uint64_t boundary) {
  std::vector<std::byte> state(model.state_layout().bytes);
  absl::Status status =
      worker::LoadPrefixState(store, IdsOf(receipts), model.state_layout(), boundary, state.data());
  if (!status.ok()) return status;
  return state;
}

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_LANE_FIXTURE_H_
