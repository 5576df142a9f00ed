// GetPart: reading, verifying, and quarantine of what does not verify.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "statestore/engine_store.h"
#include "statestore/records.h"

namespace deltafill {
namespace {

constexpr int kReadsMax = 4;

absl::Status NoSuchPart() { return absl::NotFoundError("no such part"); }

}  // namespace

absl::StatusOr<Part> EngineStore::GetPart(const PartId& id, std::span<const uint32_t> layers) {
  Part part;
  absl::StatusOr<PartHeader> header = ReadPart(id, layers, &part.payload);
  if (!header.ok()) return header.status();
  part.header = *std::move(header);
  return part;
}

absl::StatusOr<PartHeader> EngineStore::ReadPart(const PartId& id, std::span<const uint32_t> layers,
                                                 std::vector<std::byte>* payload) {
  for (int tries = 1;; ++tries) {
    if (payload != nullptr) payload->clear();
    absl::StatusOr<PartHeader> header = TryReadPart(id, layers, payload);
    if (!absl::IsAborted(header.status())) return header;
    if (tries == kReadsMax) return absl::UnavailableError(std::string(header.status().message()));
  }
}

// ABORTED if the part was removed and written again meanwhile, so that the read tells nothing.
absl::StatusOr<PartHeader> EngineStore::TryReadPart(const PartId& id,
                                                    std::span<const uint32_t> layers,
                                                    std::vector<std::byte>* payload) {
  uint32_t generation = 0;
  {
    Lock lock(mutex_);
    const PartEntry* entry = parts_.Find(id);
    if (entry == nullptr || entry->condition == PartCondition::kAbsent) return NoSuchPart();
    if (entry->condition == PartCondition::kDamaged) {
      return absl::DataLossError(DamageReason(id));
    }
    generation = entry->generation;
  }
  absl::StatusOr<PartHeader> header = ReadPartUnchecked(id, layers, payload);
  if (!absl::IsDataLoss(header.status())) return header;
  return Quarantine(id, generation, std::string(header.status().message()));
}

// DATA_LOSS for whatever cannot be true of a part that is there.
absl::StatusOr<PartHeader> EngineStore::ReadPartUnchecked(const PartId& id,
                                                          std::span<const uint32_t> layers,
                                                          std::vector<std::byte>* payload) {
  absl::StatusOr<DecodedPart> part = absl::DataLossError("its record is missing");
  absl::Status status =
      engine_->Get(Family::kMeta, PartRecordKey(id), [&part](std::string_view value) {
        if (!value.empty()) part = DecodePartHeader(value.substr(1));
      });
  if (!status.ok() && !absl::IsNotFound(status)) return status;
  if (!part.ok()) return part.status();
  const std::vector<uint32_t>& stored = part->header.layers;
  std::vector<uint32_t> chosen(layers.begin(), layers.end());
  if (chosen.empty()) chosen = stored;
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (i > 0 && chosen[i] <= chosen[i - 1]) {
      return absl::InvalidArgumentError("layers: must ascend");
    }
    const auto place = std::lower_bound(stored.begin(), stored.end(), chosen[i]);
    if (place == stored.end() || *place != chosen[i]) {
      return absl::NotFoundError(absl::StrCat("the part has no layer ", chosen[i]));
    }
    const auto position = static_cast<size_t>(place - stored.begin());
    absl::Status verified;
    status = engine_->Get(Family::kParts, LayerKey(id, static_cast<uint32_t>(position)),
                          [&](std::string_view raw) {
                            const std::span<const std::byte> layer = std::as_bytes(std::span(raw));
                            verified = VerifyPartLayer(*part, position, layer);
                            if (!verified.ok() || payload == nullptr) return;
                            payload->reserve(chosen.size() * layer.size());
                            payload->insert(payload->end(), layer.begin(), layer.end());
                          });
    if (absl::IsNotFound(status)) {
      return absl::DataLossError(absl::StrCat("layer ", chosen[i], " is missing"));
    }
    if (!status.ok()) return status;
    if (!verified.ok()) return verified;
  }
  PartHeader header = part->header;
  header.layers = std::move(chosen);
  return header;
}

// Marks the part as damaged, unless what was read was not the part that is there now.
absl::Status EngineStore::Quarantine(const PartId& id, uint32_t generation,
                                     const std::string& reason) {
  Lock lock(mutex_);
  const PartEntry* entry = parts_.Find(id);
  if (entry == nullptr || entry->condition == PartCondition::kAbsent) return NoSuchPart();
  if (entry->condition == PartCondition::kWhole && entry->generation == generation &&
      !entry->busy) {
    damage_[id] = reason;
    ++quarantined_parts_;
    parts_.Change(id, [](PartEntry& damaged) {
      damaged.condition = PartCondition::kDamaged;
      damaged.busy = true;
    });
    lock.unlock();
    Log(absl::StrCat("part ", id.ToHex(), " is quarantined: ", reason));
    RecordQuarantine(id);
    lock.lock();
    parts_.Change(id, [](PartEntry& damaged) { damaged.busy = false; });
    changed_.notify_all();
  }
  const auto found = damage_.find(id);
  if (found == damage_.end()) return absl::AbortedError("the part was written again meanwhile");
  return absl::DataLossError(DamageReason(id));
}

// Remembers the damage across restarts, and drops the bytes: they are worth nothing, and the
// engine's compactions would stumble over them. Should this fail, the next read finds the damage
// again.
void EngineStore::RecordQuarantine(const PartId& id) {
  WriteSet writes;
  (void)engine_->Get(Family::kMeta, PartRecordKey(id), [&](std::string_view value) {
    std::string record(value);
    if (!record.empty()) record[0] = 1;
    writes.PutOwned(Family::kMeta, PartRecordKey(id), std::move(record));
  });
  for (uint32_t i = 0; i < LayerCount(id); ++i) writes.Delete(Family::kParts, LayerKey(id, i));
  (void)engine_->Write(writes, Durability::kLater);
}

uint32_t EngineStore::LayerCount(const PartId& id) const {
  Lock lock(mutex_);
  const PartEntry* entry = parts_.Find(id);
  return entry == nullptr ? 0 : entry->layer_count;
}

// Reads every part, so that damage shows itself.
void EngineStore::ScrubParts() {
  std::vector<PartId> ids;
  {
    Lock lock(mutex_);
    ids = parts_.Ids();
  }
  for (const PartId& id : ids) {
    (void)ReadPart(id, {}, nullptr);
    Lock lock(mutex_);
    if (stopping_) return;
  }
}

std::string EngineStore::DamageReason(const PartId& id) const {
  const auto found = damage_.find(id);
  return absl::StrCat("part ", id.ToHex(), ": ",
                      found == damage_.end() ? std::string("is being removed") : found->second);
}

std::string EngineStore::KnownDamage(const Manifest& manifest) const {
  for (const PartRef& part : manifest.parts) {
    const PartEntry* entry = parts_.Find(part.id);
    if (entry == nullptr || entry->condition != PartCondition::kWhole) return DamageReason(part.id);
  }
  return "";
}

}  // namespace deltafill
