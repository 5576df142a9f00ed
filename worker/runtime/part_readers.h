// Threads that read and verify the parts of a stored state ahead of the one who needs them.
#ifndef DELTAFILL_WORKER_RUNTIME_PART_READERS_H_
#define DELTAFILL_WORKER_RUNTIME_PART_READERS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace deltafill::worker {

// What is to be read: `count` reads, begun in the order of their indices.
struct PartReads {
  size_t count = 0;
  size_t first = 0;             // so many are done before any other begins
  size_t ahead_max = SIZE_MAX;  // at most so many begin after the last one awaited
  size_t readers_max = 1;       // threads
};

// Awaited by one thread. After a failure no read begins any more; those at hand are finished.
class PartReaders {
 public:
  // Reads the one of that index, and puts what it read where whoever awaits it finds it. Called
  // once for each, by several threads at a time.
  using Read = std::function<absl::Status(size_t index)>;
  // Runs it on a new thread; throws std::system_error if there can be none.
  using StartThread = std::function<std::thread(std::function<void()> run)>;

  // What `read` uses outlives it. Where the machine has fewer threads than readers_max, those that
  // there are read everything; without any, Await reads.
  PartReaders(const PartReads& reads, Read read, const StartThread& start_thread = NewThread);
  ~PartReaders();  // ends after the reads at hand
  PartReaders(const PartReaders&) = delete;
  PartReaders& operator=(const PartReaders&) = delete;

  // Until the read of that index is done. The first failure of any read if it will not be.
  absl::Status Await(size_t index);

 private:
  static std::thread NewThread(std::function<void()> run) { return std::thread(std::move(run)); }
  void Main();
  bool Take(size_t* index);
  void Finish(size_t index, const absl::Status& status);
  void ReadHere(size_t index);
  bool Ended() const;
  bool MayBegin() const;

  const PartReads reads_;
  const Read read_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<bool> done_;
  size_t begun_ = 0;
  size_t first_done_ = 0;  // of reads_.first
  size_t awaited_ = 0;     // reads up to the last awaited one
  bool stopping_ = false;
  absl::Status failure_;

  std::vector<std::thread> threads_;  // last
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_PART_READERS_H_
