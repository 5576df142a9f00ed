#include "tests/statestore/store_fixture.h"

#include <random>

#include "statestore/prefix_key.h"
#include "statestore/records.h"

namespace deltafill::testing {

SamplePart::SamplePart(uint32_t seed, std::vector<uint32_t> layers, uint32_t floats_per_layer) {
  header.kind = seed % 2 == 0 ? PartKind::kRecurrent : PartKind::kConvTail;
  header.layers = std::move(layers);
  header.shape = {1, 1, floats_per_layer, 1};
  header.first_token = 64 * seed;
  payload.resize(header.PayloadBytes());
  std::mt19937 random(seed);
  for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
}

std::vector<std::span<const std::byte>> SamplePart::Payloads() const {
  std::vector<std::span<const std::byte>> layers;
  for (size_t i = 0; i < header.layers.size(); ++i) {
    layers.push_back(std::span(payload).subspan(i * header.LayerBytes(), header.LayerBytes()));
  }
  return layers;
}

std::vector<StateId> SampleChain(const TenantSalt& salt, uint32_t seed, size_t length) {
  std::vector<uint32_t> tokens(length * kBlockTokenCount);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(seed + i);
  return KeyChain(RootKey({}, HashNumerics("test"), salt), tokens);
}

Manifest SampleManifest(const std::string& tenant, const StateId& state, uint64_t boundary,
                        const std::vector<PartReceipt>& receipts) {
  Manifest manifest;
  manifest.state = state;
  manifest.tenant = tenant;
  manifest.numerics = "test";
  manifest.boundary = boundary;
  manifest.created_unix_ms = 1'700'000'000'000;
  for (const PartReceipt& receipt : receipts) {
    manifest.parts.push_back({receipt.id, receipt.kind, receipt.bytes});
  }
  return manifest;
}

absl::StatusOr<PutManifestOutcome> StoreState(StateStore* store, const std::string& tenant,
                                              const StateId& state, uint64_t boundary,
                                              const std::vector<uint32_t>& seeds,
                                              uint32_t floats_per_layer, bool pinned) {
  std::vector<PartReceipt> receipts;
  std::vector<uint64_t> leases;
  for (uint32_t seed : seeds) {
    const SamplePart part(seed, {0, 1, 2, 5}, floats_per_layer);
    const absl::StatusOr<PartReceipt> receipt =
        store->PutPart(tenant, part.header, part.Payloads());
    if (!receipt.ok()) return receipt.status();
    receipts.push_back(*receipt);
    leases.push_back(receipt->lease_id);
  }
  Manifest manifest = SampleManifest(tenant, state, boundary, receipts);
  manifest.pinned = pinned;
  return store->PutManifest(manifest, leases);
}

absl::Status FaultyEngine::Get(Family family, std::string_view key,
                               absl::FunctionRef<void(std::string_view)> use) {
  if (reads_fail) return absl::UnavailableError("injected read error");
  if (family == Family::kParts) ++layer_reads;
  return engine_->Get(family, key, use);
}

absl::Status FaultyEngine::Write(const WriteSet& writes, Durability durability) {
  if (writes_fail) return absl::UnavailableError("injected write error");
  return engine_->Write(writes, durability);
}

void FlipLayerByte(KeyValueEngine* engine, const PartId& id, uint32_t position) {
  std::string layer;
  (void)engine->Get(Family::kParts, LayerKey(id, position),
                    [&](std::string_view value) { layer = value; });
  layer.at(layer.size() / 2) ^= 1;
  WriteSet writes;
  writes.Put(Family::kParts, LayerKey(id, position), layer);
  (void)engine->Write(writes, Durability::kLater);
}

}  // namespace deltafill::testing
