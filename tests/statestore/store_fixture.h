// Parts, manifests, a clock and a faulty engine for the store's tests.
#ifndef DELTAFILL_TESTS_STATESTORE_STORE_FIXTURE_H_
#define DELTAFILL_TESTS_STATESTORE_STORE_FIXTURE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "statestore/engine_store.h"
#include "statestore/store.h"

namespace deltafill::testing {

// A part whose bytes follow from seed.
struct SamplePart {
  SamplePart(uint32_t seed, std::vector<uint32_t> layers, uint32_t floats_per_layer);
  std::vector<std::span<const std::byte>> Payloads() const;

  PartHeader header;
  std::vector<std::byte> payload;
};

// A key chain made of seeds: the keys of boundaries 64, 128, ...
std::vector<StateId> SampleChain(const TenantSalt& salt, uint32_t seed, size_t length);

Manifest SampleManifest(const std::string& tenant, const StateId& state, uint64_t boundary,
                        const std::vector<PartReceipt>& receipts);

// Puts parts with the seeds (4 layers of 64 floats unless said otherwise) and publishes them.
absl::StatusOr<PutManifestOutcome> StoreState(StateStore* store, const std::string& tenant,
                                              const StateId& state, uint64_t boundary,
                                              const std::vector<uint32_t>& seeds,
                                              uint32_t floats_per_layer = 64, bool pinned = false);

class FakeClock final : public StoreClock {
 public:
  int64_t SteadyMs() override { return ms_; }
  int64_t UnixUs() override { return 1'700'000'000'000'000 + ms_ * 1000; }
  void Advance(std::chrono::milliseconds time) { ms_ += time.count(); }

 private:
  std::atomic<int64_t> ms_{1000};
};

// Passes everything to an engine that outlives it, so that a store can be closed and opened anew
// over the same bytes; and fails where a test wants it to.
class FaultyEngine final : public KeyValueEngine {
 public:
  explicit FaultyEngine(std::shared_ptr<KeyValueEngine> engine) : engine_(std::move(engine)) {}

  absl::Status Get(Family family, std::string_view key,
                   absl::FunctionRef<void(std::string_view)> use) override;
  absl::Status Write(const WriteSet& writes, Durability durability) override;
  absl::Status Scan(Family family, std::string_view prefix, std::string_view from,
                    absl::FunctionRef<bool(std::string_view, std::string_view)> visit) override {
    return engine_->Scan(family, prefix, from, visit);
  }

  static inline std::atomic<bool> writes_fail{false};
  static inline std::atomic<bool> reads_fail{false};
  static inline std::atomic<size_t> layer_reads{0};  // of parts

 private:
  std::shared_ptr<KeyValueEngine> engine_;
};

// Changes one byte of a stored layer behind the store's back.
void FlipLayerByte(KeyValueEngine* engine, const PartId& id, uint32_t position);

}  // namespace deltafill::testing

#endif  // DELTAFILL_TESTS_STATESTORE_STORE_FIXTURE_H_
