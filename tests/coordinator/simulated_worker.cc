// The workers' side of the simulated cluster.
#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/simulated_cluster.h"

namespace deltafill::coordinator::test {
namespace {

uint64_t BoundaryOf(const PartId& part) {
  uint64_t boundary = 0;
  for (int byte = 7; byte >= 0; --byte) boundary = boundary << 8 | part.bytes[byte];
  return boundary;
}

uint64_t EndOf(const RangeOrder& order) { return order.span.first_token + order.span.token_count; }

}  // namespace

// To the coordinator, in order; lost if the worker dies before it is sent.
void SimulatedCluster::Report(WorkerNumber number, std::function<void()> report) {
  SimulatedWorker& worker = workers_.at(number);
  worker.to_coordinator_s = std::max(worker.to_coordinator_s, now_s_ + Latency());
  At(worker.to_coordinator_s, [this, number, report = std::move(report)] {
    const SimulatedWorker& sender = workers_.at(number);
    if (sender.alive && !sender.closed) report();
  });
}

void SimulatedCluster::Send(WorkerNumber number, const WorkerOrder& order) {
  if (const auto* range = std::get_if<RangeOrder>(&order)) CheckOrder(number, *range);
  SimulatedWorker& worker = workers_.at(number);
  if (const auto* abort = std::get_if<AbortOrder>(&order)) worker.abort_sent.insert(abort->attempt);
  worker.to_worker_s = std::max(worker.to_worker_s, now_s_ + Latency());
  At(worker.to_worker_s, [this, number, order] { Receive(number, order); });
}

// Ranges of an attempt come in order and without gaps, each from where the one before ends and at
// the worker that was named as its next.
void SimulatedCluster::CheckOrder(WorkerNumber number, const RangeOrder& order) {
  std::vector<RangeOrder>& earlier = given_[order.attempt];
  std::vector<WorkerNumber>& workers = given_to_[order.attempt];
  if (order.range != earlier.size()) Fault("ranges out of order");
  if (order.tokens_begin + order.tokens->size() < EndOf(order))
    Fault("a range past the prompt's end");
  if (order.range > 0) {
    const RangeOrder& before = earlier.back();
    if (order.span.first_token != EndOf(before)) Fault("a gap between ranges");
    if (!before.hand_on || before.next != number) Fault("not the worker that was named as next");
    if (before.span.token_count % 64 != 0) Fault("a range that is no run of blocks");
    if (order.source.kind != SourceOrder::Kind::kPeer || order.source.peer != workers.back()) {
      Fault("not the peer of the range before");
    }
  } else if (order.source.kind == SourceOrder::Kind::kZero) {
    if (order.span.first_token != 0) Fault("a zero state in the middle");
  } else if (order.source.kind != SourceOrder::Kind::kStored ||
             BoundaryOf(order.source.part_ids.at(0)) != order.span.first_token) {
    Fault("a stored state of another boundary");
  }
  if (settings_.latents) CheckLatentOrder(order);
  uint64_t previous = order.span.first_token;
  for (const BoundaryOrder& boundary : order.boundaries) {
    if (boundary.boundary <= previous || boundary.boundary > EndOf(order)) {
      Fault("a boundary outside its range, or out of order");
    }
    previous = boundary.boundary;
  }
  earlier.push_back(order);
  workers.push_back(number);
}

void SimulatedCluster::Receive(WorkerNumber number, const WorkerOrder& order) {
  SimulatedWorker& worker = workers_.at(number);
  if (!worker.alive || worker.closed) return;
  if (const auto* range = std::get_if<RangeOrder>(&order)) {
    if (worker.drain_received) Fault("a range after DrainWorker");
    worker.known.insert({range->attempt, range->range});
    worker.queue.push_back(*range);
    // Senders that wait for the range to be known look again.
    for (const auto& [other, state] : workers_) Advance(other);
  } else if (const auto* abort = std::get_if<AbortOrder>(&order)) {
    Abort(number, abort->attempt);
    Advance(number);
  } else if (std::holds_alternative<DrainOrder>(order)) {
    worker.drain_received = true;
  }
  ReportDrainedIfIdle(number);
}

void SimulatedCluster::Abort(WorkerNumber number, const AttemptRef& attempt) {
  SimulatedWorker& worker = workers_.at(number);
  worker.aborted.insert(attempt);
  worker.holds.erase(attempt);
  std::erase_if(worker.mailbox,
                [&](const auto& entry) { return std::get<0>(entry.first) == attempt; });
  if (!worker.queue.empty() && worker.queue.front().attempt == attempt) {
    worker.layer = 0;
    worker.computing = false;
    ++worker.epoch;
  }
  std::erase_if(worker.queue, [&](const RangeOrder& order) { return order.attempt == attempt; });
}

// Starts the next layer of the front range if what it needs is there.
void SimulatedCluster::Advance(WorkerNumber number) {
  SimulatedWorker& worker = workers_.at(number);
  if (!worker.alive || worker.computing || worker.queue.empty()) return;
  const RangeOrder order = worker.queue.front();
  if (worker.layer == settings_.layers) {
    // Under strict hand-over the last layer's state may still have been waiting for its receiver.
    return FinishRange(number);
  }
  if (worker.layer == 0 && settings_.latents && !OpenLatents(number, order)) return;
  if (order.source.kind == SourceOrder::Kind::kPeer) {
    const auto arrived = worker.mailbox.find({order.attempt, order.range, worker.layer});
    if (arrived == worker.mailbox.end()) return;
    if (arrived->second.end != order.span.first_token) Fault("a state of another boundary");
    if (settings_.latents && worker.layer + 1 == settings_.layers &&
        arrived->second.latents_from != worker.holds.at(order.attempt)) {
      Fault("latents that do not go on from those that the worker holds");
    }
    worker.mailbox.erase(arrived);
  }
  const bool reads_store =
      order.source.kind == SourceOrder::Kind::kStored || !order.latents.stored.empty();
  if (worker.layer == 0 && reads_store && settings_.stored_loss > 0 &&
      random_.Uniform(0.0, 1.0) < settings_.stored_loss) {
    AttemptFailure failure;
    failure.status = absl::DataLossError("damaged part");
    failure.stored_state_lost = true;
    return FailAttempt(number, order.attempt, failure);
  }
  worker.computing = true;
  const double layer_s =
      settings_.costs.layer_fixed_s +
      static_cast<double>(order.span.token_count) * settings_.costs.layer_token_s;
  At(now_s_ + layer_s, [this, number, epoch = worker.epoch] {
    SimulatedWorker& running = workers_.at(number);
    if (running.alive && running.epoch == epoch) FinishLayer(number);
  });
}

void SimulatedCluster::FinishLayer(WorkerNumber number) {
  SimulatedWorker& worker = workers_.at(number);
  const RangeOrder order = worker.queue.front();
  if (order.hand_on && !HandOn(number, order, worker.layer)) {
    // Strict: look again when the receiver has been given the range.
    At(now_s_ + 0.001, [this, number, epoch = worker.epoch] {
      SimulatedWorker& waiting = workers_.at(number);
      if (waiting.alive && waiting.epoch == epoch) FinishLayer(number);
    });
    return;
  }
  if (worker.queue.empty() || worker.queue.front().attempt != order.attempt) return;  // it failed
  ++worker.layer;
  worker.computing = false;
  Report(number, [this, number, order, layers = worker.layer] {
    scheduler_.OnRangeProgress(number, order.attempt, order.range, layers);
  });
  Advance(number);
}

void SimulatedCluster::FinishRange(WorkerNumber number) {
  SimulatedWorker& worker = workers_.at(number);
  const RangeOrder order = worker.queue.front();
  for (const BoundaryOrder& boundary : order.boundaries) Save(number, order.attempt, boundary);
  if (settings_.latents) CloseLatents(number, order);
  if (order.last_logits) {
    Report(number, [this, number, order] {
      scheduler_.OnLastLogits(number, order.attempt,
                              std::string(kSimulatedVocabulary * sizeof(float), '\0'));
    });
  }
  Report(number, [this, number, order] {
    computed_.insert({order.attempt, order.range});
    scheduler_.OnRangeDone(number, order.attempt, order.range);
  });
  worker.queue.pop_front();
  worker.layer = 0;
  ++worker.epoch;
  Advance(number);
  ReportDrainedIfIdle(number);
}

// False if the sender has to wait. A dead receiver fails the attempt.
bool SimulatedCluster::HandOn(WorkerNumber number, const RangeOrder& order, uint32_t layer) {
  SimulatedWorker& receiver = workers_.at(order.next);
  if (!receiver.alive) {
    AttemptFailure failure;
    failure.status = absl::UnavailableError("peer cannot be reached");
    failure.peer_lost = true;
    FailAttempt(number, order.attempt, failure);
    return true;
  }
  const bool known = receiver.known.count({order.attempt, order.range + 1}) > 0;
  if (settings_.strict_hand_over && !known && receiver.aborted.count(order.attempt) == 0) {
    return false;
  }
  ++workers_.at(number).unsent;
  const double more_s =
      settings_.hand_over_s_max > 0 ? random_.Uniform(0.0, settings_.hand_over_s_max) : 0.0;
  At(now_s_ + Latency() + more_s, [this, number, order, layer] {
    --workers_.at(number).unsent;
    SimulatedWorker& to = workers_.at(order.next);
    const bool lost = !workers_.at(number).alive && random_.Integer(0, 1) == 0;
    if (to.alive && !lost && to.aborted.count(order.attempt) == 0) {
      to.mailbox[{order.attempt, order.range + 1, layer}] = {EndOf(order),
                                                             order.latents.next_holds};
      Advance(order.next);
    }
    ReportDrainedIfIdle(number);
  });
  return true;
}

void SimulatedCluster::Save(WorkerNumber number, const AttemptRef& attempt,
                            const BoundaryOrder& boundary) {
  ++workers_.at(number).unsent;
  const double save_s = settings_.save_s_max > 0 ? random_.Uniform(0.0, settings_.save_s_max) : 0.0;
  const bool skipped = boundary.recovery && settings_.recovery_skip > 0 &&
                       random_.Uniform(0.0, 1.0) < settings_.recovery_skip;
  At(now_s_ + save_s, [this, number, attempt, boundary, skipped] {
    --workers_.at(number).unsent;
    Report(number, [this, number, attempt, boundary, skipped] {
      StoredBoundary stored;
      stored.boundary = boundary.boundary;
      if (!skipped) {
        stored.parts = {{PartOf(boundary.boundary), PartKind::kRecurrent, 1, NewLease()}};
        if (settings_.latents && boundary.boundary % kLatentPieceTokens != 0) {
          stored.parts.push_back({PieceOf(boundary.boundary), PartKind::kLatent, 1, NewLease()});
        }
      }
      scheduler_.OnBoundaryStored(number, attempt, stored, skipped);
    });
    ReportDrainedIfIdle(number);
  });
}

void SimulatedCluster::FailAttempt(WorkerNumber number, const AttemptRef& attempt,
                                   AttemptFailure failure) {
  Abort(number, attempt);
  Report(number, [this, number, attempt, failure = std::move(failure)] {
    scheduler_.OnAttemptFailed(number, attempt, failure);
  });
  Advance(number);
}

void SimulatedCluster::ReportDrainedIfIdle(WorkerNumber number) {
  SimulatedWorker& worker = workers_.at(number);
  if (!worker.alive || !worker.drain_received || worker.drained_sent) return;
  if (!worker.queue.empty() || worker.unsent > 0) return;
  worker.drained_sent = true;
  Report(number, [this, number] {
    scheduler_.OnDrained(number);
    workers_.at(number).alive = false;
    workers_.at(number).closed = true;
    scheduler_.LoseWorker(number, "drained");
  });
}

}  // namespace deltafill::coordinator::test
