// A full miss: the key chain of a prompt and its lookup, with many boundaries stored.
// lookup_bench [stored boundaries, default 1000000] [prompt tokens, default 1000000] [directory]
// With a directory the states are in RocksDB, and the time to open it again is shown as well.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

#include "statestore/engine_store.h"
#include "statestore/prefix_key.h"
#include "statestore/rocks_engine.h"

namespace deltafill {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kTenant[] = "bench";
constexpr size_t kStatesPerPart = 64;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::unique_ptr<EngineStore> Open(const std::string& directory) {
  absl::StatusOr<std::unique_ptr<KeyValueEngine>> engine = NewMemoryEngine();
  if (!directory.empty()) engine = OpenRocksEngine({.directory = directory, .sync_writes = false});
  if (engine.ok()) {
    auto store = EngineStore::Open(*std::move(engine), {});
    if (store.ok()) return *std::move(store);
    std::fprintf(stderr, "%s\n", store.status().ToString().c_str());
  }
  std::exit(1);
}

void Fill(StateStore* store, size_t state_count) {
  std::mt19937_64 random(1);
  PartReceipt receipt;
  for (size_t i = 0; i < state_count; ++i) {
    if (i % kStatesPerPart == 0) {
      PartHeader header;
      header.layers = {0};
      header.first_token = i;
      header.shape = {1, 1, 1, 1};
      const std::vector<std::byte> payload(header.PayloadBytes());
      const std::vector<std::span<const std::byte>> layers = {payload};
      receipt = *store->PutPart(kTenant, header, layers);
    }
    Manifest manifest;
    for (uint8_t& byte : manifest.state.bytes) byte = static_cast<uint8_t>(random());
    manifest.tenant = kTenant;
    manifest.numerics = "bench";
    manifest.boundary = 64 * (1 + i % 15'625);
    manifest.parts = {{receipt.id, receipt.kind, receipt.bytes}};
    const auto outcome = store->PutManifest(manifest, {});
    if (!outcome.ok()) {
      std::fprintf(stderr, "%s\n", outcome.status().ToString().c_str());
      std::exit(1);
    }
  }
}

int Run(size_t state_count, size_t token_count, const std::string& directory) {
  std::unique_ptr<EngineStore> store = Open(directory);
  Fill(store.get(), state_count);
  if (!directory.empty()) {
    store.reset();
    const Clock::time_point start = Clock::now();
    store = Open(directory);
    std::printf("open with %zu states: %.0f ms\n", state_count, MillisecondsSince(start));
  }
  const TenantSalt salt = *store->GetTenantSalt(kTenant);
  std::vector<uint32_t> tokens(token_count);
  std::vector<double> keys_ms, probes_ms;
  for (uint32_t run = 0; run < 11; ++run) {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i * 31 + run);
    const Clock::time_point start = Clock::now();
    const std::vector<StateId> chain = KeyChain(RootKey({}, HashNumerics("bench"), salt), tokens);
    const double hashed_ms = MillisecondsSince(start);
    const auto found = store->FindDeepest(kTenant, chain, 64, true);
    if (!found.ok() || found->manifest) return 1;
    keys_ms.push_back(hashed_ms);
    probes_ms.push_back(MillisecondsSince(start) - hashed_ms);
  }
  std::sort(keys_ms.begin(), keys_ms.end());
  std::sort(probes_ms.begin(), probes_ms.end());
  std::printf("full miss, %zu tokens, %zu stored: keys %.2f ms + probes %.2f ms (medians of %zu)\n",
              token_count, state_count, keys_ms[5], probes_ms[5], keys_ms.size());
  std::printf("worst %.2f + %.2f ms; goal: 20 ms in all\n", keys_ms.back(), probes_ms.back());
  return 0;
}

}  // namespace
}  // namespace deltafill

int main(int argc, char** argv) {
  const size_t states = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
  const size_t tokens = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1'000'000;
  return deltafill::Run(states, tokens, argc > 3 ? argv[3] : "");
}
