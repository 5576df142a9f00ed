// Latents of attention layers: who holds which, and boundaries that wait for whole pieces.
//
// A boundary is complete when its own parts and all whole pieces before it are stored. Pieces are
// put once a prompt, by whatever range contains their end, and are kept from attempt to attempt:
// the bits are the same in every one. Their leases are renewed here as long as the prompt runs and
// then go to the observer, which may have boundaries with them still to publish.
//
// Workers have room for the latents of so many tokens. A prompt starts once every worker that could
// ever hold its latents has room for them, so that prompts never wait for each other in a circle.
#include "coordinator/scheduler/latents.h"

#include <algorithm>
#include <utility>

#include "coordinator/latent_parts.h"
#include "coordinator/scheduler/scheduler.h"

namespace deltafill::coordinator {

uint64_t LatentTokens(const PromptState& prompt) {
  if (!prompt.has_latents) return 0;
  uint64_t tokens = 0;
  if (prompt.prefill != nullptr) {
    tokens = prompt.prefill->work.end();
  } else if (prompt.single->decode != nullptr) {
    const DecodeWork& work = *prompt.single->decode;
    tokens = work.start.boundary + work.tokens.size() +
             std::min<uint64_t>(work.max_tokens, kLatentPieceTokens);
  } else {
    tokens = prompt.single->exported->start.boundary + prompt.single->exported->tokens.size();
  }
  return (tokens + kLatentPieceTokens - 1) / kLatentPieceTokens * kLatentPieceTokens;
}

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

// What prompts that have started leave of a worker's room. A worker gives it back a little later
// than it is counted free here, and has new prompts wait for that.
bool Scheduler::HasLatentRoom(const WorkerState& worker, uint64_t tokens) const {
  if (tokens == 0) return true;
  uint64_t left = worker.profile.latent_tokens_max;
  const auto take = [&](const PromptState& prompt) {
    left -= std::min(left, LatentTokens(prompt));
  };
  for (PromptNumber number : turns_) {
    const PromptState& prompt = prompts_.at(number);
    if (prompt.prefill->placed.count(worker.profile.number) > 0) take(prompt);
  }
  for (PromptNumber number : worker.single_work) take(prompts_.at(number));
  return tokens <= left;
}

// A prefill may use every worker, anything else uses one.
bool Scheduler::ShortOfRoom(const PromptState& prompt) const {
  const uint64_t tokens = LatentTokens(prompt);
  if (tokens == 0) return false;
  const std::vector<WorkerNumber> usable = UsableWorkers(prompt);
  const auto with_room = std::count_if(usable.begin(), usable.end(), [&](WorkerNumber number) {
    return HasLatentRoom(workers_.at(number), tokens);
  });
  return prompt.prefill != nullptr ? with_room < std::ssize(usable)
                                   : with_room == 0 && !usable.empty();
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
  if (worker != workers_.end()) worker->second.heard_s = worker->second.progressed_s = clock_();
  const auto found = prompts_.find(attempt.prompt);
  if (found == prompts_.end() || found->second.prefill == nullptr) return Release({part});
  PrefillState& prefill = *found->second.prefill;
  const bool usable = prefill.has_latents && end % kLatentPieceTokens == 0 &&
                      end > prefill.work.start.boundary && end <= prefill.work.end();
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
