// Putting, publishing, evicting, deleting, looking up and reading at once, over few shared parts.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <thread>

#include "statestore/rocks_engine.h"
#include "tests/statestore/store_fixture.h"

namespace deltafill {
namespace {

using testing::FakeClock;
using testing::SampleChain;
using testing::SamplePart;
using testing::StoreState;

constexpr size_t kStates = 12;
constexpr uint32_t kFloats = 256;
constexpr uint64_t kPartBytes = 112 + 4 * kFloats * sizeof(float);

std::vector<uint32_t> SeedsOf(size_t state) {
  return {static_cast<uint32_t>(state / 3), static_cast<uint32_t>(100 + state)};
}

class StoreConcurrency : public ::testing::Test {
 protected:
  void Open(std::unique_ptr<KeyValueEngine> engine) {
    EngineStoreOptions options;
    options.budget_bytes = 10 * kPartBytes;  // of 16: eviction is always at work
    options.clock = clock_;
    options.sweep_interval = std::chrono::milliseconds(1);
    options.log = [](const std::string&) {};
    store_ = *EngineStore::Open(std::move(engine), options);
    chain_ = SampleChain(*store_->GetTenantSalt("acme"), 1, kStates);
  }

  void Store(size_t state) {
    const absl::Status status =
        StoreState(store_.get(), "acme", chain_[state], 64 * (state + 1), SeedsOf(state), kFloats)
            .status();
    // Too much is leased at this moment, or the clock ran past a lease.
    EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status) ||
                absl::IsFailedPrecondition(status))
        << status;
    if (status.ok()) ++stored_;
  }

  void FindAndRead(size_t length) {
    const auto found = store_->FindDeepest("acme", std::span(chain_).first(length), 64, true);
    ASSERT_TRUE(found.ok()) << found.status();
    if (!found->manifest) return;
    for (size_t i = 0; i < 2; ++i) {
      const auto part = store_->GetPart(found->manifest->parts[i].id, {});
      if (absl::IsNotFound(part.status())) return;  // evicted since
      ASSERT_TRUE(part.ok()) << part.status();
      const SamplePart expected(SeedsOf(found->chain_index)[i], {0, 1, 2, 5}, kFloats);
      ASSERT_TRUE(part->payload == expected.payload);
      ++read_;
    }
  }

  void Work(uint32_t seed, int steps) {
    std::mt19937 random(seed);
    for (int step = 0; step < steps; ++step) {
      const size_t state = random() % kStates;
      switch (random() % 10) {
        case 0:
          (void)store_->Delete("acme", chain_[state]);
          break;
        case 1:
          (void)store_->SetPinned("acme", chain_[state], random() % 8 == 0);
          break;
        case 2:
          clock_->Advance(std::chrono::minutes(1));
          break;
        case 3:
          EXPECT_TRUE(store_->List("acme", "", 5).ok());
          break;
        case 4:
        case 5:
        case 6:
          FindAndRead(state + 1);
          break;
        default:
          Store(state);
      }
    }
  }

  void RunThreads(int steps) {
    std::vector<std::thread> threads;
    for (uint32_t seed = 0; seed < 6; ++seed) {
      threads.emplace_back([this, seed, steps] { Work(seed, steps); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_GT(stored_, 100);
    EXPECT_GT(read_, 50);
    EXPECT_GT(store_->GetStats()->evicted_states, 0u);
    EXPECT_EQ(store_->GetStats()->quarantined_parts, 0u);
    EXPECT_EQ(store_->GetStats()->determinism_mismatches, 0u);
    // What is left adds up: without states and leases there is nothing.
    for (const StateId& state : chain_) (void)store_->Delete("acme", state);
    clock_->Advance(2 * kLeaseDuration);
    EXPECT_TRUE(store_->Sweep().ok());
    EXPECT_EQ(store_->GetStats()->states, 0u);
    EXPECT_EQ(store_->GetStats()->parts, 0u);
    EXPECT_EQ(store_->GetStats()->bytes, 0u);
  }

  std::shared_ptr<FakeClock> clock_ = std::make_shared<FakeClock>();
  std::unique_ptr<EngineStore> store_;
  std::vector<StateId> chain_;
  std::atomic<int> stored_{0};
  std::atomic<int> read_{0};
};

TEST_F(StoreConcurrency, MemoryEngine) {
  Open(NewMemoryEngine());
  RunThreads(1500);
}

// RocksDB is not instrumented for the thread sanitizer.
#ifndef DELTAFILL_SANITIZER_thread
TEST_F(StoreConcurrency, RocksEngine) {
  const std::string directory =
      ::testing::TempDir() + "store_concurrency_" + std::to_string(::getpid());
  std::filesystem::remove_all(directory);
  Open(*OpenRocksEngine({.directory = directory, .sync_writes = false}));
  RunThreads(500);
  store_.reset();
  std::filesystem::remove_all(directory);
}
#endif

TEST_F(StoreConcurrency, OneSaltForATenantWhoeverAsksFirst) {
  Open(NewMemoryEngine());
  std::vector<TenantSalt> salts(8);
  std::vector<std::thread> threads;
  for (TenantSalt& salt : salts) {
    threads.emplace_back([this, &salt] { salt = *store_->GetTenantSalt("new"); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const TenantSalt& salt : salts) EXPECT_EQ(salt, salts[0]);
}

}  // namespace
}  // namespace deltafill
