// kill -9 at random moments: what was acknowledged is there and verifies, and nothing is half-made.
// DELTAFILL_CRASH_ROUNDS sets the number of rounds (default 10).
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "tests/statestore/crash_states.h"

namespace deltafill {
namespace {

using testing::CrashState;
using testing::SamplePart;

// The writer's acknowledgements until it was killed after `life`.
std::string RunWriter(const std::string& directory, uint32_t first,
                      std::chrono::milliseconds life) {
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "statestore_crash_writer";
  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, pipe_ends[0]);
  const std::string index = std::to_string(first);
  const char* arguments[] = {program.c_str(), directory.c_str(), index.c_str(), nullptr};
  pid_t pid = 0;
  EXPECT_EQ(posix_spawn(&pid, program.c_str(), &actions, nullptr,
                        const_cast<char* const*>(arguments), environ),
            0);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);

  std::string said;
  std::thread reader([&] {  // the pipe must not fill up
    char chunk[4096];
    ssize_t bytes;
    while ((bytes = read(pipe_ends[0], chunk, sizeof(chunk))) > 0) said.append(chunk, bytes);
  });
  std::this_thread::sleep_for(life);
  kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself, with " << status;
  reader.join();
  close(pipe_ends[0]);
  return said;
}

class CrashTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "crash_" + std::to_string(::getpid());
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Note(const std::string& said) {
    std::istringstream lines(said);
    std::string line;
    while (std::getline(lines, line)) {
      if (lines.eof()) break;  // cut short by the kill
      const auto index = static_cast<uint32_t>(std::stoul(line.substr(1)));
      next_ = std::max(next_, index + 1);
      if (line[0] == '+') {
        durable_.insert(index);
      } else {
        durable_.erase(index);
        deleted_.insert(index);
      }
    }
  }

  void CheckState(StateStore* store, const TenantSalt& salt, uint32_t index) {
    const CrashState state(salt, index);
    const auto found = store->FindDeepest("acme", std::vector<StateId>{state.id}, 64, true);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_TRUE(found->manifest) << "state " << index << " " << found->miss_reason;
    for (size_t i = 0; i < state.seeds.size(); ++i) {
      const SamplePart expected(state.seeds[i], {0, 1, 2, 5}, state.floats_per_layer);
      const auto read = store->GetPart(found->manifest->parts[i].id, {});
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_TRUE(read->payload == expected.payload) << "state " << index;
    }
  }

  void CheckEverything() {
    auto store = OpenRocksStore({.directory = directory_});
    ASSERT_TRUE(store.ok()) << store.status();
    const TenantSalt salt = *(*store)->GetTenantSalt("acme");
    // The one delete that may have been under way when the writer died.
    std::vector<uint32_t> gone;
    for (uint32_t index : durable_) {
      if (index + 8 < next_ || (*store)->GetManifest("acme", CrashState(salt, index).id).ok()) {
        CheckState(store->get(), salt, index);
      } else {
        EXPECT_EQ(index % 5, 2u);
        gone.push_back(index);
      }
    }
    EXPECT_LE(gone.size(), 1u);
    for (uint32_t index : gone) {
      durable_.erase(index);
      deleted_.insert(index);
    }
    for (uint32_t index : deleted_) {
      EXPECT_FALSE((*store)->GetManifest("acme", CrashState(salt, index).id).ok()) << index;
    }
    // Whatever else is visible is whole.
    std::string page;
    do {
      const auto listed = (*store)->List("acme", page, 1000);
      ASSERT_TRUE(listed.ok()) << listed.status();
      for (const Manifest& manifest : listed->manifests) {
        const std::vector<StateId> chain = {manifest.state};
        const auto found = (*store)->FindDeepest("acme", chain, 64, true);
        EXPECT_TRUE(found.ok() && found->manifest && found->miss_reason.empty());
      }
      page = listed->next_page;
    } while (!page.empty());
    EXPECT_EQ((*store)->GetStats()->quarantined_parts, 0u);
  }

  std::string directory_;
  uint32_t next_ = 4;  // the first index that nobody acknowledged
  std::set<uint32_t> durable_;
  std::set<uint32_t> deleted_;
};

TEST_F(CrashTest, AcknowledgedStatesSurviveAndNothingIsHalfMade) {
  const char* rounds_text = std::getenv("DELTAFILL_CRASH_ROUNDS");
  const int rounds = rounds_text == nullptr ? 10 : std::atoi(rounds_text);
  std::mt19937 random(static_cast<uint32_t>(::getpid()));
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const std::chrono::milliseconds life(50 + random() % 1200);
    Note(RunWriter(directory_, next_ + 100 * round, life));
    CheckEverything();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(durable_.size(), static_cast<size_t>(rounds)) << "the writer hardly ran";
  std::printf("%d rounds, %zu states durable, %zu deleted\n", rounds, durable_.size(),
              deleted_.size());
}

}  // namespace
}  // namespace deltafill
