// One or several workers' lanes over the toy model, an in-memory store and in-process exchanges,
// without coordinator or streams.
#ifndef DELTAFILL_TESTS_TESTING_LANE_FIXTURE_H_
#define DELTAFILL_TESTS_TESTING_LANE_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/testing/fake_model.h"
#include "tests/testing/held_store.h"
#include "tests/testing/random.h"
#include "tests/testing/recording_sink.h"
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

// What a worker is without its agent.
struct LaneBench {
  LaneBench(Model* model, StateStore* store, std::shared_ptr<MailboxRegistry> registry,
            uint32_t number)
      : exchange(std::make_shared<Mailbox>(model->state_layout()), std::move(registry),
                 ExchangeLinkLimits(), nullptr),
        attempts(&exchange, &sink),
        saver(store, &model->state_layout()),
        parts{model, &exchange, store, &saver, &attempts, &sink} {
    exchange.SetWorker(number);
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

  RecordingSink sink;
  WorkerExchange exchange;
  AttemptBook attempts;
  BoundarySaver saver;
  LaneParts parts;
  std::unique_ptr<PrefillLane> prefill;
  std::unique_ptr<DecodeLane> decode;
};

// Cuts a prompt into ranges in turn over all workers, wanting states at every `every` tokens and at
// the last boundary, and the last token's logits.
inline void RunWavefront(const std::vector<std::unique_ptr<LaneBench>>& workers, AttemptKey attempt,
                         const std::vector<uint32_t>& tokens, size_t range_tokens, size_t every) {
  const size_t ranges = (tokens.size() + range_tokens - 1) / range_tokens;
  for (size_t r = 0; r < ranges; ++r) {
    const size_t first = r * range_tokens;
    const size_t end = std::min(tokens.size(), first + range_tokens);
    RangeCommand command;
    command.attempt = attempt;
    command.range = static_cast<uint32_t>(r);
    command.first_token = first;
    command.tokens.assign(tokens.begin() + first, tokens.begin() + end);
    command.source.from = r == 0 ? StateSource::From::kZero : StateSource::From::kPeer;
    command.hand_on = r + 1 < ranges;
    command.next = {static_cast<uint32_t>((r + 1) % workers.size()), ""};
    command.last_logits = r + 1 == ranges;
    command.tenant = "tenant";
    const size_t last_boundary = (tokens.size() - 1) / 64 * 64;
    for (size_t boundary = first + 64; boundary <= end; boundary += 64) {
      if (boundary % every == 0 || boundary == last_boundary) {
        command.boundaries.push_back({boundary, false});
      }
    }
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
