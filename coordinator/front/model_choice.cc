#include "coordinator/front/model_choice.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace deltafill::coordinator {
namespace {

std::string Names(std::span<const ServedModel> served) {
  std::set<std::string> names;
  for (const ServedModel& model : served) names.insert(model.name);
  return absl::StrJoin(names, ", ");
}

absl::Status NobodyServes() {
  return absl::UnavailableError("no worker is attached; retrying is safe");
}

std::string Describe(const ModelFingerprint& fingerprint, std::string_view numerics) {
  return absl::StrCat(fingerprint.ToHex().substr(0, 16), " (numerics ", std::string(numerics), ")");
}

}  // namespace

absl::StatusOr<ServedModel> ChooseModel(std::span<const ServedModel> served,
                                        std::string_view name) {
  if (served.empty()) return NobodyServes();
  const ServedModel* chosen = nullptr;
  for (const ServedModel& model : served) {
    if (!name.empty() && model.name != name) continue;
    if (chosen == nullptr) {
      chosen = &model;
    } else if (model.fingerprint != chosen->fingerprint) {
      return absl::InvalidArgumentError(
          name.empty() ? absl::StrCat("model: required, as there are several: ", Names(served))
                       : absl::StrCat("model: different weights are served as ", chosen->name));
    }
  }
  if (chosen == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("model: unknown; there is: ", Names(served)));
  }
  return *chosen;
}

absl::StatusOr<ServedModel> ModelOfState(std::span<const ServedModel> served,
                                         const ModelFingerprint& fingerprint,
                                         std::string_view numerics, std::string_view name) {
  if (served.empty()) return NobodyServes();
  const auto other = [&](const ServedModel& model) {
    return absl::FailedPreconditionError(
        absl::StrCat("state: is of model ", Describe(fingerprint, numerics), "; served is ",
                     model.name, ", ", Describe(model.fingerprint, model.numerics)));
  };
  if (!name.empty()) {
    absl::StatusOr<ServedModel> named = ChooseModel(served, name);
    if (!named.ok()) return named;
    if (named->fingerprint != fingerprint) return other(*named);
  }
  for (const ServedModel& model : served) {
    if (model.fingerprint == fingerprint && model.numerics == numerics) return model;
  }
  return other(served.front());
}

}  // namespace deltafill::coordinator
