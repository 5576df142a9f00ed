#include "coordinator/workers/engine_thread.h"

#include <future>
#include <optional>
#include <utility>

namespace deltafill::coordinator {
namespace {

double SteadySeconds() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

absl::Status Stopped() { return absl::UnavailableError("the coordinator is stopping"); }

}  // namespace

EngineThread::EngineThread(const SchedulerOptions& options, std::chrono::milliseconds tick,
                           SchedulerOutput* output)
    : tick_(tick), scheduler_(options, SteadySeconds, output) {
  thread_ = std::thread([this] { Main(); });
}

EngineThread::~EngineThread() { Stop(Stopped(), nullptr); }

void EngineThread::Main() {
  own_id_.store(std::this_thread::get_id());
  SteadyClock::time_point next_tick = SteadyClock::now() + tick_;
  std::deque<Event> batch;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      posted_.wait_until(lock, next_tick, [this] { return stopping_ || !events_.empty(); });
      // Stop's own event is the last one: nothing can be posted after it.
      if (stopping_ && events_.empty()) return;
      batch.swap(events_);
    }
    for (Event& event : batch) event(scheduler_);
    batch.clear();
    if (SteadyClock::now() >= next_tick) {
      scheduler_.Tick();
      next_tick = SteadyClock::now() + tick_;
    }
  }
}

bool EngineThread::Post(Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    events_.push_back(std::move(event));
  }
  posted_.notify_one();
  return true;
}

bool EngineThread::RunAndWait(const Event& event) {
  if (std::this_thread::get_id() == own_id_.load()) {
    event(scheduler_);
    return true;
  }
  std::promise<void> done;
  const bool posted = Post([&](Scheduler& scheduler) {
    event(scheduler);
    done.set_value();
  });
  if (posted) done.get_future().wait();
  return posted;
}

void EngineThread::Stop(const absl::Status& status, Event last) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) {
      events_.push_back([status, last = std::move(last)](Scheduler& scheduler) {
        scheduler.FinishAll(status);
        if (last) last(scheduler);
      });
    }
    stopping_ = true;
  }
  posted_.notify_one();
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<PromptNumber> EngineThread::Submit(
    const std::function<absl::StatusOr<PromptNumber>(Scheduler&)>& submit) {
  if (std::this_thread::get_id() == own_id_.load()) {
    return absl::FailedPreconditionError("prompts cannot be submitted from an observer");
  }
  absl::StatusOr<PromptNumber> number = Stopped();
  RunAndWait([&](Scheduler& scheduler) { number = submit(scheduler); });
  return number;
}

absl::StatusOr<PromptNumber> EngineThread::SubmitPrefill(PrefillWork work,
                                                         std::shared_ptr<PromptObserver> observer) {
  return Submit([&](Scheduler& scheduler) {
    return scheduler.SubmitPrefill(std::move(work), std::move(observer));
  });
}

absl::StatusOr<PromptNumber> EngineThread::SubmitDecode(DecodeWork work,
                                                        std::shared_ptr<PromptObserver> observer) {
  return Submit([&](Scheduler& scheduler) {
    return scheduler.SubmitDecode(std::move(work), std::move(observer));
  });
}

absl::StatusOr<PromptNumber> EngineThread::SubmitExport(ExportWork work,
                                                        std::shared_ptr<PromptObserver> observer) {
  return Submit([&](Scheduler& scheduler) {
    return scheduler.SubmitExport(std::move(work), std::move(observer));
  });
}

void EngineThread::Cancel(PromptNumber prompt) {
  Post([prompt](Scheduler& scheduler) { scheduler.Cancel(prompt); });
}

template <typename Value>
Value EngineThread::Ask(const std::function<Value(const Scheduler&)>& question) const {
  Value answer{};
  const_cast<EngineThread*>(this)->RunAndWait(
      [&](Scheduler& scheduler) { answer = question(scheduler); });
  return answer;
}

std::vector<ServedModel> EngineThread::Models() const {
  return Ask<std::vector<ServedModel>>([](const Scheduler& s) { return s.Models(); });
}

std::vector<AttachedWorker> EngineThread::Workers() const {
  return Ask<std::vector<AttachedWorker>>([](const Scheduler& s) { return s.Workers(); });
}

std::string EngineThread::LastLoss() const {
  return Ask<std::string>([](const Scheduler& s) { return s.LastLoss(); });
}

uint32_t EngineThread::PromptsRunning() const {
  return Ask<uint32_t>([](const Scheduler& s) { return s.PromptsRunning(); });
}

uint32_t EngineThread::PromptsQueued() const {
  return Ask<uint32_t>([](const Scheduler& s) { return s.PromptsQueued(); });
}

}  // namespace deltafill::coordinator
