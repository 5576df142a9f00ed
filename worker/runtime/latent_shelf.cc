#include "worker/runtime/latent_shelf.h"

#include <utility>
#include <vector>

namespace deltafill::worker {

std::shared_ptr<SequenceLatents> LatentShelf::Open(const AttemptKey& attempt) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<SequenceLatents>& sequence = sequences_[attempt];
  if (sequence == nullptr) sequence = pool_->NewSequence();
  return sequence;
}

void LatentShelf::Drop(const AttemptKey& attempt) {
  std::vector<std::shared_ptr<SequenceLatents>> dropped;  // freed without the lock
  std::lock_guard lock(mutex_);
  auto sequence = sequences_.lower_bound(AttemptKey{attempt.prompt, 0});
  while (sequence != sequences_.end() && sequence->first <= attempt) {
    dropped.push_back(std::move(sequence->second));
    sequence = sequences_.erase(sequence);
  }
}

void LatentShelf::DropAll() {
  std::map<AttemptKey, std::shared_ptr<SequenceLatents>> dropped;
  std::lock_guard lock(mutex_);
  dropped.swap(sequences_);
}

size_t LatentShelf::size() const {
  std::lock_guard lock(mutex_);
  return sequences_.size();
}

}  // namespace deltafill::worker
