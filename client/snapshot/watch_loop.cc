#include "client/snapshot/watch_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>

#include "client/snapshot/tree_watch.h"
#include "client/termination.h"

namespace deltafill::client {
namespace {

constexpr std::chrono::hours kQuietMax{24};
constexpr std::chrono::seconds kRetryAfter{5};  // a failed update

// Between the thread that waits for signals, which nothing can join, and the loop.
struct Interruption {
  explicit Interruption(SnapshotCalls* calls) : calls(calls), descriptor(eventfd(0, EFD_CLOEXEC)) {}

  void Raise() {
    const std::lock_guard lock(mutex);
    raised = true;
    const uint64_t one = 1;
    (void)!write(descriptor.get(), &one, sizeof(one));
    if (calls != nullptr) calls->Cancel();
  }
  bool IsRaised() {
    const std::lock_guard lock(mutex);
    return raised;
  }
  void Detach() {
    const std::lock_guard lock(mutex);
    calls = nullptr;
  }

  std::mutex mutex;
  SnapshotCalls* calls;  // under mutex
  bool raised = false;   // under mutex
  const OpenFile descriptor;
};

}  // namespace

void PrepareWatch() { HoldTerminationSignals(); }

int WatchTree(SnapshotCalls& calls, const PutAsk& first_ask, const RememberedDirectory& settings,
              double settle_s, const std::function<void(const PutReport&)>& report) {
  const auto interruption = std::make_shared<Interruption>(&calls);
  std::thread([interruption] {
    WaitForTermination();
    interruption->Raise();
  }).detach();
  absl::StatusOr<TreeWatch> watch = TreeWatch::Open(settings.directory, settings.tree);
  if (!watch.ok()) return calls.Fail(watch.status());
  const auto settle = std::chrono::milliseconds(static_cast<int64_t>(settle_s * 1000));
  FetchedTokenizer tokenizer;
  PutAsk ask = first_ask;
  int code = 0;
  for (bool first = true;; first = false) {
    const absl::Status watching = watch->Refresh();
    absl::StatusOr<PutReport> done = watching.ok() ? PutTree(calls, tokenizer, ask, settings)
                                                   : absl::StatusOr<PutReport>(watching);
    if (done.ok() && !done->skipped) report(*done);
    if (interruption->IsRaised()) break;
    if (!done.ok()) code = calls.Fail(done.status());
    if (!done.ok() && first) break;
    if (!done.ok()) {
      std::fprintf(stderr, "deltafill: trying again in %d s\n", int{kRetryAfter.count()});
    } else if (first) {
      std::fprintf(stderr, "watching %s until interrupted\n", settings.directory.c_str());
    }
    code = 0;
    ask.skip_unchanged = true;
    ask.reorder = false;
    ask.no_resume = false;
    const TreeWatch::Event event =
        watch->Wait(settle, done.ok() ? std::chrono::milliseconds(kQuietMax) : kRetryAfter,
                    interruption->descriptor.get());
    if (event == TreeWatch::Event::kStopped) break;
  }
  interruption->Detach();
  return code;
}

}  // namespace deltafill::client
