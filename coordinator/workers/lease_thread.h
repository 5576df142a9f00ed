// Renews and releases leases on a thread of its own.
#ifndef DELTAFILL_COORDINATOR_WORKERS_LEASE_THREAD_H_
#define DELTAFILL_COORDINATOR_WORKERS_LEASE_THREAD_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "statestore/store.h"

namespace deltafill::coordinator {

// Thread-safe; never blocks. A call that fails is logged and not repeated: leases that are not
// released end by themselves, and renewals come again long before a lease runs out.
class LeaseThread {
 public:
  LeaseThread(StateStore* store, std::function<void(const std::string&)> log);
  // Finishes the releases that wait, in one call.
  ~LeaseThread();

  void Renew(const std::vector<uint64_t>& lease_ids);
  void Release(const std::vector<uint64_t>& lease_ids);

 private:
  void Main();
  void Call(const char* what, const std::vector<uint64_t>& lease_ids,
            absl::Status (StateStore::*method)(std::span<const uint64_t>));

  StateStore* const store_;
  const std::function<void(const std::string&)> log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> renewals_;  // under mutex_
  std::vector<uint64_t> releases_;  // under mutex_
  bool stopping_ = false;           // under mutex_
  std::thread thread_;              // last
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_WORKERS_LEASE_THREAD_H_
