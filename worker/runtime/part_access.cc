#include "worker/runtime/part_access.h"

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"

namespace deltafill::worker {
namespace {

constexpr int kPutTries = 4;
constexpr std::chrono::milliseconds kPutPause{150};  // doubles with each try

}  // namespace

absl::StatusOr<PartReceipt> PutPartWithRetry(StateStore& store, const std::string& tenant,
                                             const PartHeader& header, LayerPayloads payloads) {
  std::chrono::milliseconds pause = kPutPause;
  for (int attempt = 1;; ++attempt) {
    absl::StatusOr<PartReceipt> receipt = store.PutPart(tenant, header, payloads);
    if (receipt.ok() || !absl::IsUnavailable(receipt.status()) || attempt == kPutTries) {
      return receipt;
    }
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
}

absl::StatusOr<Part> GetStoredPart(StateStore& store, const PartId& id,
                                   std::span<const uint32_t> layers) {
  absl::StatusOr<Part> part = store.GetPart(id, layers);
  if (absl::IsNotFound(part.status())) return LostPart(id, "is not in the store");
  return part;
}

absl::Status LostPart(const PartId& id, absl::string_view why) {
  return absl::DataLossError(absl::StrCat("part ", id.ToHex(), ": ", why));
}

}  // namespace deltafill::worker
