// FindDeepest: the lookup.
#include "absl/strings/str_cat.h"
#include "statestore/engine_store.h"
#include "statestore/records.h"

namespace deltafill {
namespace {

constexpr size_t kMissReasonBytesMax = 1024;

void AddReason(uint64_t boundary, const std::string& reason, std::string* reasons) {
  if (reasons->size() >= kMissReasonBytesMax) return;
  absl::StrAppend(reasons, reasons->empty() ? "" : "; ", "boundary ", boundary, ": ", reason);
}

absl::Status ValidateChain(std::span<const StateId> chain, uint64_t first_boundary) {
  if (chain.size() > kChainLengthMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("chain: ", chain.size(), " keys, limit ", kChainLengthMax));
  }
  if (first_boundary == 0 || first_boundary % kBlockTokenCount != 0 ||
      first_boundary > kBoundaryMax) {
    return absl::InvalidArgumentError(absl::StrCat("first_boundary ", first_boundary,
                                                   ": must be a positive multiple of ",
                                                   kBlockTokenCount, " up to ", kBoundaryMax));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FindResult> EngineStore::FindDeepest(std::string_view tenant,
                                                    std::span<const StateId> chain,
                                                    uint64_t first_boundary, bool verify) {
  absl::Status valid = ValidateTenant(tenant);
  valid.Update(ValidateChain(chain, first_boundary));
  if (!valid.ok()) return valid;
  FindResult result;
  size_t next = chain.size();
  while (ProbeDeepest(tenant, chain, first_boundary, &next, &result.miss_reason)) {
    const uint64_t boundary = first_boundary + next * kBlockTokenCount;
    absl::StatusOr<Manifest> manifest = ReadManifest(tenant, chain[next]);
    absl::Status status = manifest.status();
    if (status.ok()) status = CheckState(*manifest, verify);
    if (status.ok()) {
      result.manifest = *std::move(manifest);
      result.chain_index = next;
      return result;
    }
    // An unreadable disk is a miss as well: the prompt is then computed, which is always right.
    AddReason(
        boundary,
        absl::IsNotFound(status) ? "was removed during the lookup" : std::string(status.message()),
        &result.miss_reason);
  }
  return result;
}

// The deepest visible state of the tenant below *next; moves *next there.
bool EngineStore::ProbeDeepest(std::string_view tenant, std::span<const StateId> chain,
                               uint64_t first_boundary, size_t* next, std::string* reasons) {
  Lock lock(mutex_);
  const uint32_t tenant_index = TenantIndex(tenant);
  while (*next > 0) {
    --*next;
    const StateEntry* entry = states_.Find(chain[*next]);
    if (entry == nullptr || !entry->visible || entry->tenant != tenant_index) continue;
    const uint64_t boundary = first_boundary + *next * kBlockTokenCount;
    if (entry->boundary == boundary) return true;
    AddReason(boundary, absl::StrCat("is stored as boundary ", entry->boundary), reasons);
  }
  return false;
}

// OK if the state may be used, and marks it as used. NOT_FOUND: it was removed meanwhile.
absl::Status EngineStore::CheckState(const Manifest& manifest, bool verify) {
  {
    Lock lock(mutex_);
    StateEntry* entry = states_.Find(manifest.state);
    if (entry == nullptr || !entry->visible) return NoSuchState(manifest.state);
    const std::string damage = KnownDamage(manifest);
    if (!damage.empty()) return absl::DataLossError(damage);
    states_.Touch(entry, clock_->UnixUs());  // before the reading, so that it is evicted late
    entry->last_use_dirty = true;
  }
  if (!verify) return absl::OkStatus();
  // All of them, also after a bad one: a part whose damage is known is written anew with its state.
  absl::Status whole;
  for (const PartRef& part : manifest.parts) {
    whole.Update(ReadPart(part.id, {}, nullptr).status());
  }
  return whole;
}

}  // namespace deltafill
