#include "tests/testing/held_store.h"

#include <algorithm>
#include <utility>

namespace deltafill::test {

void HeldStore::Hold() {
  std::lock_guard lock(mutex_);
  held_ = true;
}

void HeldStore::LetGo() {
  {
    std::lock_guard lock(mutex_);
    held_ = false;
    held_layer_.reset();
  }
  let_go_.notify_all();
}

int HeldStore::held_puts() const {
  std::lock_guard lock(mutex_);
  return held_ ? held_puts_ : 0;
}

void HeldStore::FailPuts(absl::Status status) {
  std::lock_guard lock(mutex_);
  put_error_ = std::move(status);
}

absl::StatusOr<PartReceipt> HeldStore::PutPart(std::string_view tenant, const PartHeader& header,
                                               LayerPayloads payloads) {
  {
    std::unique_lock lock(mutex_);
    ++held_puts_;
    let_go_.wait(lock, [this] { return !held_; });
    --held_puts_;
    if (!put_error_.ok()) return put_error_;
  }
  return store_->PutPart(tenant, header, payloads);
}

void HeldStore::DamageLayer(uint32_t layer) {
  std::lock_guard lock(mutex_);
  damaged_layer_ = layer;
}

void HeldStore::HoldLayer(uint32_t layer) {
  std::lock_guard lock(mutex_);
  held_layer_ = layer;
}

absl::StatusOr<Part> HeldStore::GetPart(const PartId& id, std::span<const uint32_t> layers) {
  const auto asks_for = [layers](const std::optional<uint32_t>& layer) {
    return layer.has_value() &&
           (layers.empty() || std::find(layers.begin(), layers.end(), *layer) != layers.end());
  };
  {
    std::unique_lock lock(mutex_);
    let_go_.wait(lock, [&] { return !asks_for(held_layer_); });
    if (asks_for(damaged_layer_)) return absl::DataLossError("a checksum failed");
  }
  return store_->GetPart(id, layers);
}

}  // namespace deltafill::test
