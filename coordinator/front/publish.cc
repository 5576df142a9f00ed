#include "coordinator/front/publish.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/front/elapsed.h"
#include "coordinator/front/log.h"
#include "coordinator/front/part_leases.h"
#include "coordinator/latent_parts.h"

namespace deltafill::coordinator {
namespace {

Manifest MakeManifest(const KeyedPrompt& prompt, const StateId& state,
                      const StoredBoundary& stored) {
  Manifest manifest;
  manifest.state = state;
  manifest.tenant = prompt.tenant;
  manifest.fingerprint = prompt.model.fingerprint;
  manifest.numerics = prompt.model.numerics;
  manifest.boundary = stored.boundary;
  manifest.root = prompt.root;
  manifest.parts = AsRefs(stored.parts);
  manifest.created_unix_ms = UnixMilliseconds();
  return manifest;
}

}  // namespace

uint64_t PartBytes(const std::vector<PartRef>& parts) {
  uint64_t bytes = 0;
  for (const PartRef& part : parts) bytes += part.bytes;
  return bytes;
}

PublishedState FromManifest(const Manifest& manifest) {
  return {manifest.state, manifest.boundary, manifest.parts, PartBytes(manifest.parts), true};
}

absl::StatusOr<PublishedState> PublishBoundary(StateStore& store, const KeyedPrompt& prompt,
                                               const StateId& state, const StoredBoundary& stored) {
  const Manifest manifest = MakeManifest(prompt, state, stored);
  absl::StatusOr<PutManifestOutcome> outcome = store.PutManifest(manifest, LeaseIds(stored.parts));
  if (!outcome.ok()) {
    ReleaseParts(store, stored.parts);
    if (!absl::IsFailedPrecondition(outcome.status())) return outcome.status();
    return absl::UnavailableError(
        absl::StrCat("the state at token ", stored.boundary,
                     " could not be published: ", std::string(outcome.status().message())));
  }
  PublishedState published = FromManifest(manifest);
  published.already_stored = *outcome != PutManifestOutcome::kPublished;
  if (*outcome != PutManifestOutcome::kDeterminismMismatch) return published;
  LogError(absl::StrCat("DETERMINISM MISMATCH: computing the state at token ", stored.boundary,
                        " of model ", prompt.model.name, " (numerics ", prompt.model.numerics,
                        ", tenant ", prompt.tenant, ") again gave other bits; state id ",
                        state.ToHex(), " keeps the old ones"));
  absl::StatusOr<Manifest> old = store.GetManifest(prompt.tenant, state);
  if (!old.ok()) return old.status();
  return FromManifest(*old);
}

}  // namespace deltafill::coordinator
