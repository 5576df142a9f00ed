// The thread that owns the scheduler: everything that happens to it is an event on this thread.
#ifndef DELTAFILL_COORDINATOR_WORKERS_ENGINE_THREAD_H_
#define DELTAFILL_COORDINATOR_WORKERS_ENGINE_THREAD_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "coordinator/prompt_engine.h"
#include "coordinator/scheduler/scheduler.h"

namespace deltafill::coordinator {

// Thread-safe.
class EngineThread final : public PromptEngine {
 public:
  using Event = std::function<void(Scheduler&)>;

  // `output` is called on the engine's thread and must outlive it.
  EngineThread(const SchedulerOptions& options, std::chrono::milliseconds tick,
               SchedulerOutput* output);
  ~EngineThread() override;

  // Runs the event on the engine's thread, in the order of the calls. False, and nothing is run,
  // once the engine has been stopped.
  bool Post(Event event);

  // As Post, and waits until it has run. Runs it at once on the engine's own thread.
  bool RunAndWait(const Event& event);

  // Runs what was posted, finishes every prompt with `status`, runs `last` and ends the thread.
  // Idempotent; the first call's arguments count.
  void Stop(const absl::Status& status, Event last);

  absl::StatusOr<PromptNumber> SubmitPrefill(PrefillWork work,
                                             std::shared_ptr<PromptObserver> observer) override;
  absl::StatusOr<PromptNumber> SubmitDecode(DecodeWork work,
                                            std::shared_ptr<PromptObserver> observer) override;
  absl::StatusOr<PromptNumber> SubmitExport(ExportWork work,
                                            std::shared_ptr<PromptObserver> observer) override;
  void Cancel(PromptNumber prompt) override;
  std::vector<ServedModel> Models() const override;
  std::vector<AttachedWorker> Workers() const override;
  std::string LastLoss() const override;
  uint32_t PromptsRunning() const override;
  uint32_t PromptsQueued() const override;

 private:
  using SteadyClock = std::chrono::steady_clock;

  void Main();
  absl::StatusOr<PromptNumber> Submit(
      const std::function<absl::StatusOr<PromptNumber>(Scheduler&)>& submit);
  template <typename Value>
  Value Ask(const std::function<Value(const Scheduler&)>& question) const;

  const std::chrono::milliseconds tick_;
  Scheduler scheduler_;  // the thread's

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<Event> events_;  // under mutex_
  bool stopping_ = false;     // under mutex_
  std::mutex join_mutex_;
  std::atomic<std::thread::id> own_id_;
  std::thread thread_;  // last
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_WORKERS_ENGINE_THREAD_H_
