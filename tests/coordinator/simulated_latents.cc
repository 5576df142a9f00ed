// What simulated workers do with latents.
#include <algorithm>

#include "tests/coordinator/simulated_cluster.h"

namespace deltafill::coordinator::test {

PartId SimulatedCluster::PieceOf(uint64_t end) {
  PartId part = PartOf(end);
  part.bytes[31] = 2;
  return part;
}

std::vector<PartId> SimulatedCluster::PartsOf(uint64_t boundary) const {
  std::vector<PartId> parts{PartOf(boundary)};
  if (!settings_.latents) return parts;
  for (uint64_t end = kLatentPieceTokens; end <= boundary; end += kLatentPieceTokens) {
    parts.push_back(PieceOf(end));
  }
  if (boundary % kLatentPieceTokens != 0) parts.push_back(PieceOf(boundary));
  return parts;
}

uint64_t SimulatedCluster::NewLease() {
  leases_.insert(++lease_last_);
  return lease_last_;
}

void SimulatedCluster::CheckLatentOrder(const RangeOrder& order) {
  const LatentOrder& latents = order.latents;
  const uint64_t end = order.span.first_token + order.span.token_count;
  if (latents.attempt_start > order.span.first_token || latents.attempt_end < end) {
    Fault("a range outside its attempt");
  }
  if (order.range == 0 && latents.attempt_start != order.span.first_token) {
    Fault("an attempt that does not start with its first range");
  }
  if (!latents.stored.empty()) {
    std::vector<PartId> expected = PartsOf(latents.attempt_start);
    expected.erase(expected.begin());
    if (latents.stored != expected) Fault("stored latents of another boundary");
  }
  uint64_t before = order.span.first_token;
  for (uint64_t piece : latents.piece_ends) {
    if (piece <= before || piece > end || piece % kLatentPieceTokens != 0) {
      Fault("a piece outside its range, or out of order");
    }
    before = piece;
  }
}

// Before the first layer: what the worker holds, or loads. False if the range cannot run: its
// attempt has failed here, or (a fault) it lacks latents.
bool SimulatedCluster::OpenLatents(WorkerNumber number, const RangeOrder& order) {
  SimulatedWorker& worker = workers_.at(number);
  if (worker.aborted.count(order.attempt) > 0) return false;
  if (worker.holds.count(order.attempt) == 0) {
    if (order.latents.attempt_start > 0 && order.latents.stored.empty()) {
      Fault("a worker without latents was not told where to load them from");
    }
    worker.holds[order.attempt] = order.latents.attempt_start;
  } else if (!order.latents.stored.empty()) {
    // Told again is harmless only before its first range has run.
    if (worker.holds[order.attempt] != order.latents.attempt_start) {
      Fault("a worker that holds latents was told to load them");
    }
  }
  const uint64_t held = worker.holds[order.attempt];
  if (held > order.span.first_token ||
      (held < order.span.first_token && order.source.kind != SourceOrder::Kind::kPeer)) {
    Fault("latents that nobody sends are missing");
    return false;
  }
  return true;
}

void SimulatedCluster::CloseLatents(WorkerNumber number, const RangeOrder& order) {
  SimulatedWorker& worker = workers_.at(number);
  if (order.latents.keep) {
    worker.holds[order.attempt] = order.span.first_token + order.span.token_count;
  } else {
    worker.holds.erase(order.attempt);
  }
  for (uint64_t end : order.latents.piece_ends) {
    ++worker.unsent;
    const double save_s =
        settings_.save_s_max > 0 ? random_.Uniform(0.0, settings_.save_s_max) : 0.0;
    At(now_s_ + save_s, [this, number, attempt = order.attempt, end] {
      --workers_.at(number).unsent;
      Report(number, [this, number, attempt, end] {
        scheduler_.OnLatentPieceStored(number, attempt, end,
                                       {PieceOf(end), PartKind::kLatent, 1, NewLease()});
      });
      ReportDrainedIfIdle(number);
    });
  }
}

}  // namespace deltafill::coordinator::test
