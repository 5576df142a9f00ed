// Latents of attention layers: who holds which, and boundaries that wait for whole pieces.
//
// A boundary is complete when its own parts and all whole pieces before it are stored. Pieces are
// put once a prompt, by whatever range contains their end, and are kept from attempt to attempt:
// the bits are the same in every one. Their leases are renewed here as long as the prompt runs and
// then go to the observer, which may have boundaries with them still to publish.
#include "coordinator/scheduler/latents.h"

#include <algorithm>
#include <utility>

#include "coordinator/latent_parts.h"
#include "coordinator/scheduler/scheduler.h"

namespace deltafill::coordinator {

std::vector<PartReceipt> PiecesBefore(const PrefillState& prefill, uint64_t boundary) {
  const StartState& start = prefill.work.start;
  std::vector<PartReceipt> pieces = AsReceipts(WholePieces(start.parts, start.boundary));
  for (const auto& [end, piece] : prefill.pieces) {
    if (end > boundary) break;
    pieces.push_back({piece.id, piece.kind, piece.bytes, 0});
  }
  return pieces;
}

const std::vector<PartRef>& AttemptStartParts(const PrefillState& prefill) {
  return prefill.started_from_kept ? prefill.kept.at(prefill.start_boundary).parts
                                   : prefill.work.start.parts;
}

bool LacksPiece(const PrefillState& prefill, uint64_t end) {
  return prefill.has_latents && prefill.pieces.count(end) == 0 && !prefill.pending.empty() &&
         *prefill.pending.rbegin() >= end;
}

bool HasPieces(const PrefillState& prefill, uint64_t boundary) {
  if (!prefill.has_latents) return true;
  for (uint64_t end = NextPieceEnd(prefill.work.start.boundary); end <= boundary;
       end += kLatentPieceTokens) {
    if (prefill.pieces.count(end) == 0) return false;
  }
  return true;
}

void Scheduler::AddLatents(PrefillState& prefill, WorkerNumber worker, RangeOrder& order) {
  LatentOrder& latents = order.latents;
  const uint64_t end = order.span.first_token + order.span.token_count;
  latents.attempt_start = prefill.start_boundary;
  latents.attempt_end = prefill.end_token;
  if (prefill.holds.count(worker) == 0 && prefill.start_boundary > 0) {
    latents.stored = LatentIds(AttemptStartParts(prefill));
  }
  const auto later = prefill.placement.begin() + order.range + 1;
  latents.keep = std::find(later, prefill.placement.end(), worker) != prefill.placement.end();
  if (latents.keep) {
    prefill.holds[worker] = end;
  } else {
    prefill.holds.erase(worker);
  }
  if (order.hand_on) {
    const auto held = prefill.holds.find(order.next);
    latents.next_holds = held == prefill.holds.end() ? prefill.start_boundary : held->second;
  }
  // Recovery boundaries come when it is time for one: then their pieces must have been put.
  const bool recovery = options_.recovery_interval_s > 0 && order.hand_on;
  for (uint64_t piece = NextPieceEnd(order.span.first_token); piece <= end;
       piece += kLatentPieceTokens) {
    const bool stored = prefill.pieces.count(piece) > 0;
    if (!stored && (recovery || LacksPiece(prefill, piece))) latents.piece_ends.push_back(piece);
  }
}

void Scheduler::OnLatentPieceStored(WorkerNumber number, const AttemptRef& attempt, uint64_t end,
                                    const PartReceipt& part) {
  const auto worker = workers_.find(number);
  if (worker != workers_.end()) worker->second.heard_s = clock_();
  const auto found = prompts_.find(attempt.prompt);
  if (found == prompts_.end() || found->second.prefill == nullptr) return Release({part});
  PrefillState& prefill = *found->second.prefill;
  const bool usable = prefill.has_latents && end % kLatentPieceTokens == 0 &&
                      end > prefill.work.start.boundary && end <= prefill.work.tokens->size();
  if (!usable || !prefill.pieces.emplace(end, part).second) return Release({part});
  TakeWaiting(attempt.prompt);
}

// Reports the boundaries that have become complete.
void Scheduler::TakeWaiting(PromptNumber number) {
  PrefillState& prefill = *prompts_.at(number).prefill;
  while (!prefill.waiting.empty()) {
    const auto first = prefill.waiting.begin();
    if (!HasPieces(prefill, first->first)) return;  // nor has a later one
    const StoredBoundary own = std::move(first->second);
    prefill.waiting.erase(first);
    if (TakeBoundary(prompts_.at(number), own)) return Settle();
  }
}

// A part of the kept boundary that the attempt started from is lost. Others share its pieces, so
// that none of them can be trusted: the next attempt starts where the prompt did.
void Scheduler::ForgetStart(PrefillState& prefill) {
  ReleaseRecovery(prefill);
  prefill.kept.clear();
  for (const auto& [end, piece] : prefill.pieces) Release({piece});
  prefill.pieces.clear();
}

void Scheduler::RenewLatents(PrefillState& prefill) {
  const double now_s = clock_();
  if (!prefill.has_latents || now_s - prefill.pieces_renewed_s < options_.lease_renewal_s) return;
  prefill.pieces_renewed_s = now_s;
  std::vector<uint64_t> ids = prefill.work.start_leases;
  for (const auto& [end, piece] : prefill.pieces) ids.push_back(piece.lease_id);
  for (const auto& [boundary, stored] : prefill.waiting) {
    for (const PartReceipt& part : stored.parts) ids.push_back(part.lease_id);
  }
  if (!ids.empty()) output_->RenewLeases(ids);
}

void Scheduler::EndLatents(PrefillState& prefill, PromptObserver& observer) {
  for (const auto& [boundary, stored] : prefill.waiting) Release(stored.parts);
  std::vector<uint64_t> ids = std::move(prefill.work.start_leases);
  for (const auto& [end, piece] : prefill.pieces) ids.push_back(piece.lease_id);
  if (!ids.empty()) observer.OnSharedLeases(ids);
}

}  // namespace deltafill::coordinator
