#include "coordinator/front/prefix_lookup.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/log.h"
#include "coordinator/front/state_access.h"
#include "coordinator/latent_parts.h"
#include "statestore/prefix_key.h"

namespace deltafill::coordinator {
namespace {

// Keys of the boundaries that may be resumed from, up to `deepest`; the first is at first_boundary.
// Boundary 0 is always there and never stored, so it is not among them.
std::vector<StateId> Probes(const KeyedPrompt& prompt, uint64_t deepest, uint64_t* first_boundary) {
  std::vector<StateId> keys;
  *first_boundary = prompt.base;
  if (prompt.base == 0) {
    *first_boundary = kBlockTokenCount;
  } else {
    keys.push_back(prompt.base_key);
  }
  const auto whole_blocks = static_cast<int64_t>((deepest - prompt.base) / kBlockTokenCount);
  keys.insert(keys.end(), prompt.chain.begin(), prompt.chain.begin() + whole_blocks);
  return keys;
}

// "" unless the same prefix is stored deeper under another numerics id.
absl::StatusOr<std::string> DeeperUnderOtherNumerics(StateStore& store, const KeyedPrompt& prompt,
                                                     uint64_t found,
                                                     std::span<const ServedModel> others) {
  if (prompt.base != 0) return std::string();  // the tokens before it are not known
  const uint64_t deepest = FinalBoundary(prompt.TokenCount());
  for (const ServedModel& other : others) {
    if (other.fingerprint != prompt.model.fingerprint || other.numerics == prompt.model.numerics) {
      continue;
    }
    const StateId root = RootKey(other.fingerprint, HashNumerics(other.numerics), prompt.salt);
    const std::vector<StateId> chain =
        KeyChain(root, std::span(prompt.tokens).first(static_cast<size_t>(deepest)));
    absl::StatusOr<FindResult> result =
        store.FindDeepest(prompt.tenant, chain, kBlockTokenCount, /*verify=*/false);
    if (!result.ok()) return result.status();
    if (result->manifest.has_value() && result->manifest->boundary > found) {
      return absl::StrCat("the state at token ", result->manifest->boundary,
                          " is stored under other numerics only (", other.numerics, ")");
    }
  }
  return std::string();
}

absl::StatusOr<std::string> NothingDeeper(StateStore& store, const KeyedPrompt& prompt,
                                          uint64_t found, std::span<const ServedModel> others) {
  absl::StatusOr<std::string> elsewhere = DeeperUnderOtherNumerics(store, prompt, found, others);
  if (!elsewhere.ok() || !elsewhere->empty()) return elsewhere;
  if (found == 0) return std::string("no state of this prefix is stored");
  return absl::StrCat("no state deeper than token ", found, " is stored");
}

void AddReason(uint64_t boundary, const std::string& why, std::string* reason) {
  absl::StrAppend(reason, reason->empty() ? "" : "; ", "boundary ", boundary, ": ", why);
}

// Like FindPrefix, but not deeper than `limit`, and the reason is only what the store says of
// states that it passed over. Without `verify` parts are not read: what is damaged shows later.
absl::StatusOr<PrefixHit> FindWhole(StateStore& store, const KeyedPrompt& prompt, uint64_t limit,
                                    bool verify) {
  PrefixHit hit;
  uint64_t first_boundary = 0;
  std::vector<StateId> probes = Probes(prompt, limit, &first_boundary);
  const bool nothing_asked = probes.empty();
  while (!probes.empty()) {
    absl::StatusOr<FindResult> result =
        store.FindDeepest(prompt.tenant, probes, first_boundary, verify);
    if (!result.ok()) return result.status();
    if (!result->miss_reason.empty()) {
      absl::StrAppend(&hit.miss_reason, hit.miss_reason.empty() ? "" : "; ", result->miss_reason);
    }
    if (!result->manifest.has_value()) break;
    const Manifest& manifest = *result->manifest;
    const std::string why = WhyIncomplete(prompt.model, manifest.boundary, manifest.parts);
    if (why.empty()) {
      hit.start.boundary = manifest.boundary;
      hit.start.parts = manifest.parts;
      return hit;
    }
    AddReason(manifest.boundary, why, &hit.miss_reason);
    probes.resize(result->chain_index);
  }
  if (prompt.base == 0 || nothing_asked) return hit;
  if (hit.miss_reason.empty()) return StateNotFound("state");
  return absl::DataLossError(absl::StrCat("state: damaged: ", hit.miss_reason));
}

// Which of the wanted boundaries are stored and not known to be damaged; their parts are not read.
absl::Status FindStored(StateStore& store, const KeyedPrompt& prompt,
                        std::span<const uint64_t> wanted, PrefillStart* plan) {
  for (uint64_t boundary : wanted) {
    const StateId key = prompt.KeyAt(boundary);
    absl::StatusOr<FindResult> result =
        store.FindDeepest(prompt.tenant, std::span(&key, 1), boundary, /*verify=*/false);
    if (!result.ok()) return result.status();
    if (plan->miss_reason.empty()) plan->miss_reason = result->miss_reason;
    if (!result->manifest.has_value()) continue;
    const std::string why = WhyIncomplete(prompt.model, boundary, result->manifest->parts);
    if (why.empty()) {
      plan->stored[boundary] = *std::move(result->manifest);
    } else if (plan->miss_reason.empty()) {
      AddReason(boundary, why, &plan->miss_reason);
    }
  }
  return absl::OkStatus();
}

// Chooses plan->start below the first wanted boundary that is not stored.
absl::Status ChooseStart(StateStore& store, const KeyedPrompt& prompt,
                         std::span<const uint64_t> wanted, bool verify, PrefillStart* plan) {
  uint64_t limit = FinalBoundary(prompt.TokenCount());
  // Verification of the state to start from may find it damaged: then it is missing too, and the
  // search goes on before it. Each round has less that is stored, so this ends.
  for (bool changed = true; changed;) {
    changed = false;
    const auto missing = std::find_if(wanted.begin(), wanted.end(), [plan](uint64_t boundary) {
      return !plan->stored.contains(boundary);
    });
    if (missing != wanted.end()) limit = std::min(limit, *missing - kBlockTokenCount);
    absl::StatusOr<PrefixHit> hit = FindWhole(store, prompt, limit, verify);
    if (!hit.ok()) return hit.status();
    if (plan->miss_reason.empty()) plan->miss_reason = hit->miss_reason;
    plan->start = std::move(hit->start);
    for (uint64_t boundary : wanted) {
      if (boundary > plan->start.boundary && boundary <= limit) {
        changed = plan->stored.erase(boundary) > 0 || changed;
      }
    }
  }
  return absl::OkStatus();
}

// Why the start is before FinalBoundary, if no part was damaged.
absl::StatusOr<std::string> WhyNotDeeper(StateStore& store, const KeyedPrompt& prompt,
                                         const PrefillStart& plan,
                                         std::span<const ServedModel> others) {
  const uint64_t found = plan.start.boundary;
  uint64_t first_boundary = 0;
  const std::vector<StateId> probes =
      Probes(prompt, FinalBoundary(prompt.TokenCount()), &first_boundary);
  absl::StatusOr<FindResult> deeper =
      store.FindDeepest(prompt.tenant, probes, first_boundary, /*verify=*/false);
  if (!deeper.ok()) return deeper.status();
  if (deeper->manifest.has_value() && deeper->manifest->boundary > found) {
    return absl::StrCat("a state at token ", deeper->manifest->boundary,
                        " is stored, but the checkpoint at token ", plan.missing.front(),
                        " is not");
  }
  return NothingDeeper(store, prompt, found, others);
}

bool IsUnreadable(StateStore& store, const KeyedPrompt& prompt, const StartState& start) {
  const StateId key = prompt.KeyAt(start.boundary);
  const absl::StatusOr<FindResult> found =
      store.FindDeepest(prompt.tenant, std::span(&key, 1), start.boundary, /*verify=*/true);
  return found.ok() && !found->manifest.has_value();
}

}  // namespace

absl::StatusOr<PrefixHit> FindPrefix(StateStore& store, const KeyedPrompt& prompt, bool verify,
                                     std::span<const ServedModel> others) {
  const uint64_t deepest = FinalBoundary(prompt.TokenCount());
  absl::StatusOr<PrefixHit> hit = FindWhole(store, prompt, deepest, verify);
  if (!hit.ok()) return hit;
  if (hit->start.boundary == deepest) {
    hit->miss_reason.clear();
  } else if (hit->miss_reason.empty()) {
    absl::StatusOr<std::string> reason = NothingDeeper(store, prompt, hit->start.boundary, others);
    if (!reason.ok()) return reason.status();
    hit->miss_reason = *std::move(reason);
  }
  return hit;
}

bool IsStartLost(StateStore& store, const KeyedPrompt& prompt, const StartState& start,
                 const absl::Status& ended) {
  // A worker cannot tell whether the store is away or cannot read just this.
  const bool is_lost =
      absl::IsDataLoss(ended) || (absl::IsUnavailable(ended) && IsFromWorker(ended) &&
                                  start.boundary > 0 && IsUnreadable(store, prompt, start));
  if (is_lost) {
    LogWarning(absl::StrCat("a start state at token ", start.boundary,
                            " is lost; looking up again: ",
                            ended.ToString(absl::StatusToStringMode::kWithNoExtraData)));
  }
  return is_lost;
}

absl::StatusOr<PrefillStart> PlanStart(StateStore& store, const KeyedPrompt& prompt,
                                       std::span<const uint64_t> wanted, const StartAsk& ask,
                                       std::span<const ServedModel> others) {
  PrefillStart plan;
  if (ask.no_resume) {
    plan.miss_reason = "no_resume was asked";
    plan.missing.assign(wanted.begin(), wanted.end());
    return plan;
  }
  if (absl::Status status = FindStored(store, prompt, wanted, &plan); !status.ok()) return status;
  if (absl::Status status = ChooseStart(store, prompt, wanted, ask.verify, &plan); !status.ok()) {
    return status;
  }
  for (uint64_t boundary : wanted) {
    if (!plan.stored.contains(boundary)) plan.missing.push_back(boundary);
  }
  if (plan.start.boundary == FinalBoundary(prompt.TokenCount())) {
    plan.miss_reason.clear();
  } else if (plan.miss_reason.empty()) {
    absl::StatusOr<std::string> reason = WhyNotDeeper(store, prompt, plan, others);
    if (!reason.ok()) return reason.status();
    plan.miss_reason = *std::move(reason);
  }
  return plan;
}

}  // namespace deltafill::coordinator
