// Store write and read against the raw disk, in the same run: store_bench DIRECTORY [MiB in all].
// Raw: one file a part, written and read with O_DIRECT, fdatasync after each. Store: PutPart and
// PutManifest (synced) for each part; read after reopening, verified.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

#include "statestore/engine_store.h"
#include "statestore/rocks_engine.h"

namespace deltafill {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kTenant[] = "bench";
constexpr size_t kMebibyte = size_t{1} << 20;
constexpr size_t kLayers = 16;

void Check(bool ok, const std::string& what) {
  if (ok) return;
  std::fprintf(stderr, "store_bench: %s\n", what.c_str());
  std::exit(1);
}

double MegabytesPerSecond(size_t bytes, Clock::time_point start) {
  return static_cast<double>(bytes) / 1e6 /
         std::chrono::duration<double>(Clock::now() - start).count();
}

// Page-aligned, as O_DIRECT wants it.
std::span<std::byte> AlignedBytes(size_t bytes) {
  void* memory = std::aligned_alloc(4096, bytes);
  Check(memory != nullptr, "out of memory");
  return {static_cast<std::byte*>(memory), bytes};
}

void FillRandom(std::span<std::byte> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t word = random();
    std::memcpy(&bytes[i], &word, sizeof(word));
  }
}

struct Rates {
  double write = 0;
  double read = 0;
};

Rates MeasureRaw(const std::string& directory, std::span<std::byte> bytes, size_t count) {
  std::filesystem::create_directories(directory);
  Rates rates;
  Clock::time_point start = Clock::now();
  for (size_t i = 0; i < count; ++i) {
    FillRandom(bytes.first(4096), i);
    const int file = open((directory + "/raw" + std::to_string(i)).c_str(),
                          O_CREAT | O_TRUNC | O_WRONLY | O_DIRECT, 0600);
    Check(file >= 0, "open for writing");
    Check(write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "write");
    Check(fdatasync(file) == 0, "fdatasync");
    close(file);
  }
  rates.write = MegabytesPerSecond(count * bytes.size(), start);
  start = Clock::now();
  for (size_t i = 0; i < count; ++i) {
    const int file = open((directory + "/raw" + std::to_string(i)).c_str(), O_RDONLY | O_DIRECT);
    Check(file >= 0, "open for reading");
    Check(read(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "read");
    close(file);
  }
  rates.read = MegabytesPerSecond(count * bytes.size(), start);
  std::filesystem::remove_all(directory);
  return rates;
}

std::unique_ptr<EngineStore> OpenStore(const std::string& directory) {
  auto engine = OpenRocksEngine({.directory = directory});
  Check(engine.ok(), engine.status().ToString());
  auto store = EngineStore::Open(*std::move(engine), {});
  Check(store.ok(), store.status().ToString());
  return *std::move(store);
}

Rates MeasureStore(const std::string& directory, std::span<std::byte> bytes, size_t count) {
  std::unique_ptr<EngineStore> store = OpenStore(directory);
  PartHeader header;
  for (uint32_t layer = 0; layer < kLayers; ++layer) header.layers.push_back(layer);
  header.shape = {static_cast<uint32_t>(bytes.size() / kLayers / sizeof(float)), 1, 1, 1};
  std::vector<std::span<const std::byte>> layers;
  for (size_t i = 0; i < kLayers; ++i) {
    layers.push_back(bytes.subspan(i * header.LayerBytes(), header.LayerBytes()));
  }
  std::vector<PartId> ids;
  Rates rates;
  Clock::time_point start = Clock::now();
  for (size_t i = 0; i < count; ++i) {
    FillRandom(bytes.first(4096), i);
    const auto receipt = store->PutPart(kTenant, header, layers);
    Check(receipt.ok(), receipt.status().ToString());
    Manifest manifest;
    std::memcpy(manifest.state.bytes.data(), &i, sizeof(i));
    manifest.tenant = kTenant;
    manifest.boundary = 64;
    manifest.parts = {{receipt->id, receipt->kind, receipt->bytes}};
    const auto outcome = store->PutManifest(manifest, std::vector<uint64_t>{receipt->lease_id});
    Check(outcome.ok(), outcome.status().ToString());
    ids.push_back(receipt->id);
  }
  rates.write = MegabytesPerSecond(count * bytes.size(), start);
  store.reset();
  store = OpenStore(directory);
  start = Clock::now();
  for (const PartId& id : ids) {
    const auto part = store->GetPart(id, {});
    Check(part.ok(), part.status().ToString());
  }
  rates.read = MegabytesPerSecond(count * bytes.size(), start);
  store.reset();
  std::filesystem::remove_all(directory);
  return rates;
}

}  // namespace
}  // namespace deltafill

int main(int argc, char** argv) {
  using namespace deltafill;
  if (argc < 2) {
    std::fprintf(stderr, "store_bench DIRECTORY [MiB in all]\n");
    return 2;
  }
  const std::string directory = std::string(argv[1]) + "/store_bench";
  const size_t total = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 512) * kMebibyte;
  std::printf("part MiB | raw write MB/s | store write | ratio | raw read | store read | ratio\n");
  for (size_t mebibytes : {4, 16, 64}) {
    const std::span<std::byte> bytes = AlignedBytes(mebibytes * kMebibyte);
    FillRandom(bytes, mebibytes);
    const size_t count = total / bytes.size();
    const Rates raw = MeasureRaw(directory + "/raw", bytes, count);
    const Rates store = MeasureStore(directory + "/rocks", bytes, count);
    std::printf("%8zu | %14.0f | %11.0f | %5.2f | %8.0f | %10.0f | %5.2f\n", mebibytes, raw.write,
                store.write, store.write / raw.write, raw.read, store.read, store.read / raw.read);
    std::free(bytes.data());
  }
  std::filesystem::remove_all(directory);
  return 0;
}
