#include "worker/runtime/part_readers.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace deltafill::worker {

PartReaders::PartReaders(const PartReads& reads, Read read, const StartThread& start_thread)
    : reads_(reads), read_(std::move(read)), done_(reads.count, false) {
  const size_t readers = std::min(reads_.readers_max, reads_.count);
  threads_.reserve(readers);
  try {
    while (threads_.size() < readers) threads_.push_back(start_thread([this] { Main(); }));
  } catch (const std::system_error&) {
    // The machine has no more threads.
  }
}

PartReaders::~PartReaders() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool PartReaders::Ended() const { return stopping_ || !failure_.ok() || begun_ == reads_.count; }

bool PartReaders::MayBegin() const {
  if (begun_ >= reads_.first && first_done_ < reads_.first) return false;
  return begun_ < awaited_ || begun_ - awaited_ < reads_.ahead_max;
}

// False when nothing is left to read.
bool PartReaders::Take(size_t* index) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return Ended() || MayBegin(); });
  if (Ended()) return false;
  *index = begun_++;
  return true;
}

void PartReaders::Finish(size_t index, const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      done_[index] = true;
      if (index < reads_.first) ++first_done_;
    }
    failure_.Update(status);
  }
  changed_.notify_all();
}

void PartReaders::Main() {
  size_t index = 0;
  while (Take(&index)) Finish(index, read_(index));
}

// Without threads nobody else uses what the mutex guards.
void PartReaders::ReadHere(size_t index) {
  while (begun_ <= index && failure_.ok()) {
    const size_t next = begun_++;
    Finish(next, read_(next));
  }
}

absl::Status PartReaders::Await(size_t index) {
  if (threads_.empty()) ReadHere(index);
  std::unique_lock lock(mutex_);
  if (awaited_ <= index) {
    awaited_ = index + 1;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return done_[index] || !failure_.ok(); });
  return done_[index] ? absl::OkStatus() : failure_;
}

}  // namespace deltafill::worker
