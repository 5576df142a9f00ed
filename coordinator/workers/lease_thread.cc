#include "coordinator/workers/lease_thread.h"

#include <algorithm>
#include <span>
#include <utility>

namespace deltafill::coordinator {
namespace {

// With a store that is away for long, what has gathered beyond this is left to run out.
constexpr size_t kWaitingMax = size_t{1} << 20;

void Append(const std::vector<uint64_t>& ids, std::vector<uint64_t>& waiting) {
  if (waiting.size() + ids.size() > kWaitingMax) return;
  waiting.insert(waiting.end(), ids.begin(), ids.end());
}

}  // namespace

LeaseThread::LeaseThread(StateStore* store, std::function<void(const std::string&)> log)
    : store_(store), log_(std::move(log)) {
  thread_ = std::thread([this] { Main(); });
}

LeaseThread::~LeaseThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void LeaseThread::Renew(const std::vector<uint64_t>& lease_ids) {
  {
    const std::lock_guard lock(mutex_);
    Append(lease_ids, renewals_);
  }
  changed_.notify_one();
}

void LeaseThread::Release(const std::vector<uint64_t>& lease_ids) {
  {
    const std::lock_guard lock(mutex_);
    Append(lease_ids, releases_);
  }
  changed_.notify_one();
}

void LeaseThread::Main() {
  for (;;) {
    std::vector<uint64_t> renewals;
    std::vector<uint64_t> releases;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !renewals_.empty() || !releases_.empty(); });
      renewals.swap(renewals_);
      releases.swap(releases_);
      if (stopping_ && releases.empty()) return;
    }
    // A lease that is released by now need not be renewed; renewing it first does no harm.
    Call("renewed", renewals, &StateStore::RenewLeases);
    Call("released", releases, &StateStore::ReleaseLeases);
  }
}

void LeaseThread::Call(const char* what, const std::vector<uint64_t>& lease_ids,
                       absl::Status (StateStore::*method)(std::span<const uint64_t>)) {
  for (size_t first = 0; first < lease_ids.size(); first += kLeasesPerCallMax) {
    const size_t count = std::min(kLeasesPerCallMax, lease_ids.size() - first);
    const absl::Status status = (store_->*method)(std::span(lease_ids).subspan(first, count));
    if (!status.ok()) {
      log_(std::to_string(count) + " leases were not " + what + ": " +
           std::string(status.message()));
    }
  }
}

}  // namespace deltafill::coordinator
