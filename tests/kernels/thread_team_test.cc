#include "kernels/cpu/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

namespace deltafill::kernels::cpu {
namespace {

TEST(ThreadTeamTest, EveryIndexRunsOnceOnAKnownThread) {
  for (int threads = 1; threads <= 5; ++threads) {
    ThreadTeam team(threads);
    ASSERT_EQ(team.threads(), threads);
    for (int64_t count : {0, 1, 2, 3, 7, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
      std::atomic<int> bad_threads = 0;
      team.ParallelFor(count, [&](int64_t index, int thread) {
        calls[static_cast<size_t>(index)].fetch_add(1);
        if (thread < 0 || thread >= threads) bad_threads.fetch_add(1);
      });
      for (const auto& call : calls) EXPECT_EQ(call.load(), 1);
      EXPECT_EQ(bad_threads.load(), 0);
    }
  }
}

TEST(ThreadTeamTest, CountsBelowOneMeanTheCallerAlone) {
  ThreadTeam team(0);
  EXPECT_EQ(team.threads(), 1);
  const std::thread::id caller = std::this_thread::get_id();
  team.ParallelFor(3, [&](int64_t, int thread) {
    EXPECT_EQ(thread, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
}

// Plain (not atomic) writes must be visible to the caller, and two calls with the same `thread`
// must never overlap: scratch memory is indexed by it. TSAN checks both.
TEST(ThreadTeamTest, StressPlainWritesAndThreadScratch) {
  constexpr int kThreads = 4;
  ThreadTeam team(kThreads);
  std::vector<int64_t> per_thread(kThreads);
  std::vector<int64_t> values(257);
  int64_t expected_total = 0;
  for (int64_t loop = 0; loop < 3000; ++loop) {
    const int64_t count = loop % static_cast<int64_t>(values.size());
    team.ParallelFor(count, [&](int64_t index, int thread) {
      values[static_cast<size_t>(index)] = loop + index;
      per_thread[static_cast<size_t>(thread)] += 1;
    });
    expected_total += count;
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], loop + i);
  }
  EXPECT_EQ(std::accumulate(per_thread.begin(), per_thread.end(), int64_t{0}), expected_total);
}

TEST(ThreadTeamTest, StartAndStopWithoutWork) {
  for (int i = 0; i < 200; ++i) ThreadTeam team(1 + i % 4);
}

TEST(ThreadTeamTest, ATeamMayMoveBetweenCallers) {
  ThreadTeam team(3);
  std::atomic<int64_t> total = 0;
  for (int i = 0; i < 20; ++i) {
    std::thread([&] { team.ParallelFor(10, [&](int64_t, int) { total.fetch_add(1); }); }).join();
  }
  EXPECT_EQ(total.load(), 200);
}

}  // namespace
}  // namespace deltafill::kernels::cpu
