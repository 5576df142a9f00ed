#include "coordinator/workers/registry.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "statestore/identity.h"

namespace deltafill::coordinator {
namespace {

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

bool Seconds(double value) { return std::isfinite(value) && value >= 0.0; }

absl::Status CheckCosts(const WorkerCosts& costs) {
  if (!Seconds(costs.layer_fixed_s) || !Seconds(costs.layer_token_s) ||
      !Seconds(costs.range_fixed_s) || !Seconds(costs.exchange_s)) {
    return Invalid("hello.costs: seconds must be finite and not negative");
  }
  const AttentionCosts& attention = costs.attention;
  if (!Seconds(attention.fixed_s) || !Seconds(attention.token_s) || !Seconds(attention.pair_s) ||
      !Seconds(attention.key_s) || !Seconds(attention.row_exchange_s) ||
      !Seconds(attention.exchange_s) || !(attention.handover_fraction >= 0.0) ||
      !(attention.handover_fraction <= 1.0)) {
    return Invalid("hello.costs.attention: a value is not finite, negative, or a fraction over 1");
  }
  if (!(costs.handover_fraction >= 0.0 && costs.handover_fraction <= 1.0)) {
    return Invalid(absl::StrCat("hello.costs.handover_fraction: ", costs.handover_fraction,
                                " is not in [0, 1]"));
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const ServedModel& model) {
  if (model.fingerprint == ModelFingerprint{}) return Invalid("hello.model.fingerprint: missing");
  if (model.numerics.empty()) return Invalid("hello.model.numerics: missing");
  if (model.vocabulary == 0) return Invalid("hello.model.vocabulary: 0");
  if (model.layers == 0) return Invalid("hello.model.layers: 0");
  for (size_t i = 0; i < model.latents.layers.size(); ++i) {
    const uint32_t layer = model.latents.layers[i];
    if (layer >= model.layers || (i > 0 && layer <= model.latents.layers[i - 1])) {
      return Invalid("hello.model.latents.layers: must ascend below hello.model.layers");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WorkerProfile> WorkerRegistry::Add(uint32_t protocol, WorkerProfile profile) {
  if (protocol != kWorkerProtocol) {
    return absl::FailedPreconditionError(absl::StrCat("hello.protocol: the worker speaks version ",
                                                      protocol, ", this coordinator ",
                                                      kWorkerProtocol));
  }
  if (profile.name.empty() || profile.name.size() > kWorkerNameBytesMax) {
    return Invalid(absl::StrCat("hello.name: must have 1 to ", kWorkerNameBytesMax, " bytes"));
  }
  if (numbers_.count(profile.name) > 0) {
    return Invalid(absl::StrCat("hello.name: a worker called ", profile.name,
                                " is attached; each needs a name of its own (--name)"));
  }
  if (absl::Status status = CheckModel(profile.model); !status.ok()) return status;
  if (absl::Status status = CheckCosts(profile.costs); !status.ok()) return status;
  if (profile.range_tokens_max < kBlockTokenCount) {
    return Invalid(absl::StrCat("hello.range_tokens_max: ", profile.range_tokens_max,
                                " is under one block of 64"));
  }
  if (profile.decode_batch_max == 0) return Invalid("hello.decode_batch_max: must be at least 1");
  for (const auto& [number, other] : profiles_) {
    if (other.model.fingerprint == profile.model.fingerprint &&
        (other.model.layers != profile.model.layers ||
         other.model.vocabulary != profile.model.vocabulary)) {
      return Invalid(absl::StrCat("hello.model: layers or vocabulary differ from what worker ",
                                  other.name, " says of the same fingerprint"));
    }
  }
  if (profiles_.size() >= kWorkersMax) {
    return absl::ResourceExhaustedError(absl::StrCat(kWorkersMax, " workers are attached"));
  }
  profile.number = ++last_;
  numbers_[profile.name] = profile.number;
  profiles_[profile.number] = profile;
  return profile;
}

void WorkerRegistry::Remove(WorkerNumber worker) {
  const auto found = profiles_.find(worker);
  if (found == profiles_.end()) return;
  numbers_.erase(found->second.name);
  profiles_.erase(found);
}

std::optional<WorkerNumber> WorkerRegistry::Find(const std::string& name) const {
  const auto found = numbers_.find(name);
  if (found == numbers_.end()) return std::nullopt;
  return found->second;
}

const WorkerProfile* WorkerRegistry::Find(WorkerNumber worker) const {
  const auto found = profiles_.find(worker);
  return found == profiles_.end() ? nullptr : &found->second;
}

}  // namespace deltafill::coordinator
