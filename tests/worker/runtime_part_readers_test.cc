// Reading ahead with as many threads as there are: order, errors, stopping early, the look-ahead.
#include "worker/runtime/part_readers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tests/testing/eventually.h"

namespace deltafill::worker {
namespace {

using test::Eventually;

// The parameter: how many threads the machine has for the readers, who ask for kAsked.
constexpr size_t kAsked = 4;

// For what must not happen to happen; nothing waits for what must.
constexpr std::chrono::milliseconds kWhile{10};

class PartReadersTest : public testing::TestWithParam<size_t> {
 protected:
  PartReaders::StartThread StartThread() {
    return [this](std::function<void()> run) {
      ++asked_;
      if (started_ == GetParam()) {
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
      }
      ++started_;
      return std::thread(std::move(run));
    };
  }

  // The reads that have begun, as they told of it.
  std::vector<size_t> Begun() {
    const std::lock_guard lock(mutex_);
    return begun_;
  }
  void Begin(size_t index) {
    const std::lock_guard lock(mutex_);
    begun_.push_back(index);
    readers_.insert(std::this_thread::get_id());
  }
  static void WaitFor(const std::atomic<bool>& flag) {
    while (!flag) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  size_t threads() const { return std::min(GetParam(), kAsked); }
  size_t at_once() const { return std::max<size_t>(threads(), 1); }

  size_t asked_ = 0;
  size_t started_ = 0;
  std::mutex mutex_;
  std::vector<size_t> begun_;          // guarded by mutex_
  std::set<std::thread::id> readers_;  // guarded by mutex_
};

TEST_P(PartReadersTest, ReadsEachOnceAndWhatWasReadIsThere) {
  constexpr size_t kCount = 200;
  std::vector<size_t> read(kCount, 0);
  {
    PartReaders readers(
        {.count = kCount, .readers_max = kAsked},
        [&](size_t index) {
          Begin(index);
          read[index] += index + 1;
          return absl::OkStatus();
        },
        StartThread());
    for (size_t index : {3u, 0u, 199u, 199u, 7u}) {
      ASSERT_TRUE(readers.Await(index).ok());
      EXPECT_EQ(read[index], index + 1);
    }
    for (size_t index = 0; index < kCount; ++index) ASSERT_TRUE(readers.Await(index).ok());
  }
  for (size_t index = 0; index < kCount; ++index) EXPECT_EQ(read[index], index + 1);
  std::vector<size_t> begun = Begun();
  EXPECT_EQ(begun.size(), kCount);
  // Several threads begin in order, and tell of it in any.
  if (at_once() == 1) {
    EXPECT_TRUE(std::is_sorted(begun.begin(), begun.end()));
  }
  EXPECT_EQ(started_, threads());
  EXPECT_EQ(asked_, std::min(GetParam() + 1, kAsked));
  EXPECT_EQ(readers_.contains(std::this_thread::get_id()), threads() == 0);
}

// As many reads run at a time as threads could be had: each of the first waits for all of them.
TEST_P(PartReadersTest, AllThreadsThatThereAreRead) {
  std::atomic<size_t> running = 0;
  PartReaders readers(
      {.count = 10, .readers_max = kAsked},
      [&](size_t index) {
        ++running;
        const bool together =
            index >= at_once() || Eventually([&] { return running >= at_once(); });
        return together ? absl::OkStatus() : absl::InternalError("alone");
      },
      StartThread());
  for (size_t index = 0; index < 10; ++index) EXPECT_TRUE(readers.Await(index).ok());
}

TEST_P(PartReadersTest, OthersBeginWhenTheFirstAreDone) {
  constexpr size_t kFirst = 3;
  std::atomic<size_t> first_done = 0;
  PartReaders readers(
      {.count = 30, .first = kFirst, .readers_max = kAsked},
      [&](size_t index) -> absl::Status {
        if (index >= kFirst) {
          return first_done == kFirst ? absl::OkStatus() : absl::InternalError("too early");
        }
        std::this_thread::sleep_for(kWhile);
        ++first_done;
        return absl::OkStatus();
      },
      StartThread());
  for (size_t index = 0; index < 30; ++index) {
    EXPECT_TRUE(readers.Await(index).ok()) << index;
  }
}

TEST_P(PartReadersTest, AFailureEndsItAndWhatWasReadBeforeStays) {
  constexpr size_t kBad = 5;
  std::atomic<bool> first_awaited = false;
  std::atomic<bool> seen = false;
  {
    PartReaders readers(
        {.count = 1000, .readers_max = kAsked},
        [&](size_t index) -> absl::Status {
          Begin(index);
          if (index == kBad) {
            WaitFor(first_awaited);  // else the failure may come first
            return absl::DataLossError("a checksum failed");
          }
          if (index > kBad) WaitFor(seen);
          return absl::OkStatus();
        },
        StartThread());
    EXPECT_TRUE(readers.Await(0).ok());
    first_awaited = true;
    EXPECT_TRUE(absl::IsDataLoss(readers.Await(kBad)));
    EXPECT_TRUE(readers.Await(0).ok());
    EXPECT_TRUE(absl::IsDataLoss(readers.Await(999)));
    std::this_thread::sleep_for(kWhile);
    seen = true;
  }
  EXPECT_LE(Begun().size(), kBad + at_once());
  EXPECT_GE(Begun().size(), kBad + 1);
}

// A failure among the first ones too: nobody waits for the rest of them.
TEST_P(PartReadersTest, AFailureAmongTheFirst) {
  PartReaders readers(
      {.count = 100, .first = 2, .readers_max = kAsked},
      [&](size_t index) -> absl::Status {
        return index == 0 ? absl::DataLossError("lost") : absl::OkStatus();
      },
      StartThread());
  EXPECT_TRUE(absl::IsDataLoss(readers.Await(0)));
  EXPECT_TRUE(absl::IsDataLoss(readers.Await(50)));
}

TEST_P(PartReadersTest, NeverFurtherAheadThanTheLimit) {
  constexpr size_t kAhead = 3;
  constexpr size_t kCount = 20;
  std::atomic<size_t> awaited = 0;
  std::atomic<size_t> done = 0;
  PartReaders readers(
      {.count = kCount, .ahead_max = kAhead, .readers_max = kAsked},
      [&](size_t index) -> absl::Status {
        if (index >= awaited + kAhead) return absl::InternalError("too far");
        ++done;
        return absl::OkStatus();
      },
      StartThread());
  if (threads() > 0) {
    EXPECT_TRUE(Eventually([&] { return done == kAhead; }));
  }
  for (size_t index = 0; index < kCount; ++index) {
    awaited = index + 1;
    ASSERT_TRUE(readers.Await(index).ok());
    const size_t expected = threads() == 0 ? index + 1 : std::min(kCount, index + 1 + kAhead);
    EXPECT_TRUE(Eventually([&] { return done == expected; }));
  }
}

// One ends while readers wait for it to await more, the other while there is much left to read.
TEST_P(PartReadersTest, StopsEarly) {
  for (const size_t ahead_max : {size_t{2}, SIZE_MAX}) {
    constexpr size_t kCount = 100'000;
    std::atomic<size_t> begun = 0;
    {
      PartReaders readers(
          {.count = kCount, .ahead_max = ahead_max, .readers_max = kAsked},
          [&](size_t) {
            ++begun;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return absl::OkStatus();
          },
          StartThread());
      EXPECT_TRUE(readers.Await(0).ok());
    }
    EXPECT_GE(begun, 1u);
    EXPECT_LT(begun, kCount);
    started_ = 0;
  }
}

TEST_P(PartReadersTest, NothingToReadTakesNoThread) {
  PartReaders readers(
      {.readers_max = kAsked}, [](size_t) { return absl::InternalError("there is none"); },
      StartThread());
  EXPECT_EQ(asked_, 0u);
}

INSTANTIATE_TEST_SUITE_P(Threads, PartReadersTest, testing::Values(0u, 1u, 2u, 8u),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace deltafill::worker
