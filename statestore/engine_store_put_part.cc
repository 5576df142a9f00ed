// PutPart.
#include "absl/strings/str_cat.h"
#include "statestore/engine_store.h"
#include "statestore/records.h"

namespace deltafill {

absl::StatusOr<PartReceipt> EngineStore::PutPart(std::string_view tenant, const PartHeader& header,
                                                 LayerPayloads payloads) {
  const absl::StatusOr<TenantSalt> salt = GetTenantSalt(tenant);
  if (!salt.ok()) return salt.status();
  const absl::StatusOr<std::string> encoded_header = EncodePartHeader(header, payloads);
  if (!encoded_header.ok()) return encoded_header.status();

  PartReceipt receipt;
  receipt.id = ComputePartId(*salt, *encoded_header, payloads);
  receipt.kind = header.kind;
  receipt.bytes = encoded_header->size() + header.PayloadBytes();
  if (options_.budget_bytes > 0 && receipt.bytes > options_.budget_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "part of ", receipt.bytes, " bytes, the store's budget is ", options_.budget_bytes));
  }

  Lock lock(mutex_);
  if (absl::Status status = CheckLeaseRoom(1); !status.ok()) return status;
  if (IsThere(lock, receipt.id)) {
    // What is there is read back: bytes that went bad unnoticed are replaced by the caller's.
    receipt.lease_id = AddLease(receipt.id);
    lock.unlock();
    (void)ReadPart(receipt.id, {}, nullptr);
    lock.lock();
    if (IsThere(lock, receipt.id)) return receipt;
  }
  parts_.Change(receipt.id, [&](PartEntry& written) {
    written.bytes = receipt.bytes;
    written.kind = header.kind;
    written.layer_count = static_cast<uint16_t>(header.layers.size());
    written.busy = true;
  });
  if (receipt.lease_id == 0) receipt.lease_id = AddLease(receipt.id);
  if (absl::Status status = WritePart(lock, receipt.id, *encoded_header, payloads); !status.ok()) {
    DropLease(receipt.lease_id);
    return status;
  }
  return receipt;
}

// Waits while another call writes or removes the part, then: is it there, with nothing known
// against it?
bool EngineStore::IsThere(Lock& lock, const PartId& id) {
  const PartEntry* entry = parts_.Find(id);
  while (entry != nullptr && entry->busy) {
    changed_.wait(lock);
    entry = parts_.Find(id);
  }
  return entry != nullptr && entry->condition == PartCondition::kWhole;
}

// The entry is busy and leased. Leaves it idle: whole, or as it was before, or (if it was new)
// gone.
absl::Status EngineStore::WritePart(Lock& lock, const PartId& id, const std::string& encoded_header,
                                    LayerPayloads payloads) {
  absl::Status status = MakeRoom(lock);
  if (status.ok()) {
    lock.unlock();
    WriteSet writes;
    writes.PutOwned(Family::kMeta, PartRecordKey(id), std::string(1, '\0') + encoded_header);
    for (size_t i = 0; i < payloads.size(); ++i) {
      writes.Put(Family::kParts, LayerKey(id, static_cast<uint32_t>(i)),
                 {reinterpret_cast<const char*>(payloads[i].data()), payloads[i].size()});
    }
    status = engine_->Write(writes, Durability::kLater);
    lock.lock();
  }
  const bool was_damaged = damage_.contains(id);
  if (!status.ok() && !was_damaged) {
    parts_.Erase(id);
  } else {
    parts_.Change(id, [&](PartEntry& entry) {
      entry.busy = false;
      entry.condition = status.ok() ? PartCondition::kWhole : PartCondition::kDamaged;
      if (status.ok()) entry.generation = ++latest_generation_;
    });
    if (status.ok()) damage_.erase(id);
  }
  changed_.notify_all();
  return status;
}

}  // namespace deltafill
