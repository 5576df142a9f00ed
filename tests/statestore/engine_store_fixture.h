// A store over a faulty in-memory engine with a clock of our own, for tests of its inside.
#ifndef DELTAFILL_TESTS_STATESTORE_ENGINE_STORE_FIXTURE_H_
#define DELTAFILL_TESTS_STATESTORE_ENGINE_STORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/statestore/store_fixture.h"

namespace deltafill::testing {

class EngineStoreFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    FaultyEngine::writes_fail = false;
    FaultyEngine::reads_fail = false;
    Reopen(0);
    chain_ = SampleChain(*store_->GetTenantSalt("acme"), 1, 16);
  }

  void Reopen(uint64_t budget_bytes) {
    store_.reset();
    EngineStoreOptions options;
    options.budget_bytes = budget_bytes;
    options.clock = clock_;
    options.sweep_interval = std::chrono::milliseconds(0);
    options.log = [this](const std::string& line) {
      const std::lock_guard lock(log_mutex_);
      log_ += line + "\n";
    };
    auto opened = EngineStore::Open(std::make_unique<FaultyEngine>(engine_), options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }

  bool IsThere(size_t i) { return store_->GetManifest("acme", chain_[i]).ok(); }

  std::shared_ptr<KeyValueEngine> engine_ = NewMemoryEngine();
  std::shared_ptr<FakeClock> clock_ = std::make_shared<FakeClock>();
  std::mutex log_mutex_;
  std::string log_;
  std::unique_ptr<EngineStore> store_;
  std::vector<StateId> chain_;
};

}  // namespace deltafill::testing

#endif  // DELTAFILL_TESTS_STATESTORE_ENGINE_STORE_FIXTURE_H_
