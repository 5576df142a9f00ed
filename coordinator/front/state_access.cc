#include "coordinator/front/state_access.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "statestore/prefix_key.h"

namespace deltafill::coordinator {
namespace {

// A state of the tenant's own that is damaged is missing as well, and may say why.
absl::Status Missing(const absl::Status& status, std::string_view field) {
  const absl::string_view message = status.message();
  if (!absl::StrContains(message, "is damaged: ")) return StateNotFound(field);
  return absl::NotFoundError(absl::StrCat(std::string(field), ": ", message));
}

}  // namespace

absl::Status StateNotFound(std::string_view field) {
  return absl::NotFoundError(
      absl::StrCat(std::string(field),
                   ": no such state; Lookup with the tokens tells the deepest one there is"));
}

absl::Status ZeroIsNotStored() {
  return absl::InvalidArgumentError(
      "state: is at boundary 0, which is always there and never stored");
}

absl::StatusOr<Manifest> FindState(StateStore& store, std::string_view tenant,
                                   const TenantSalt& salt, const PrefixRef& ref,
                                   std::span<const ServedModel> served, std::string_view field) {
  if (!ref.zero) {
    absl::StatusOr<Manifest> manifest = store.GetManifest(tenant, ref.state);
    if (absl::IsNotFound(manifest.status())) return Missing(manifest.status(), field);
    return manifest;
  }
  for (const ServedModel& model : served) {
    if (RootKey(model.fingerprint, HashNumerics(model.numerics), salt) != ref.state) continue;
    Manifest zero;
    zero.state = ref.state;
    zero.root = ref.state;
    zero.tenant = std::string(tenant);
    zero.fingerprint = model.fingerprint;
    zero.numerics = model.numerics;
    return zero;
  }
  return StateNotFound(field);
}

absl::Status CheckTail(const PrefixRef& ref, const ServedModel& model) {
  for (uint32_t token : ref.tail) {
    if (token >= model.vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat(
          "state: a tail token is not below the model's vocabulary size ", model.vocabulary));
    }
  }
  return absl::OkStatus();
}

}  // namespace deltafill::coordinator
