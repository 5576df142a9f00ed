// What a store needs from whatever keeps its bytes: two families of ordered keys, atomic writes,
// and scans. The store's rules live above this line, once for all engines.
//
// All methods are thread-safe and block. Status codes, besides OK:
//   NOT_FOUND    no such key (Get only)
//   DATA_LOSS    the engine noticed that what it kept is damaged
//   UNAVAILABLE  it cannot read or write now; the engine stays usable and recovers when it can
#ifndef DELTAFILL_STATESTORE_KEY_VALUE_ENGINE_H_
#define DELTAFILL_STATESTORE_KEY_VALUE_ENGINE_H_

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace deltafill {

enum class Family {
  kMeta,   // small records; the engine verifies its own checksums
  kParts,  // layers of parts, up to 1 GiB a value; our checksums cover them, the engine's are off
};

enum class Durability {
  kLater,   // survives a killed process, not a power failure
  kSynced,  // survives a power failure, and so does every write that returned before this one began
};

// Puts and deletes that take effect together or not at all.
class WriteSet {
 public:
  struct Step {
    Family family;
    bool removes;
    std::string key;
    std::string_view value;
  };

  // The bytes of value must stay until the write has returned.
  void Put(Family family, std::string key, std::string_view value) {
    steps_.push_back({family, false, std::move(key), value});
  }
  void PutOwned(Family family, std::string key, std::string value) {
    owned_.push_back(std::move(value));
    Put(family, std::move(key), owned_.back());
  }
  void Delete(Family family, std::string key) {
    steps_.push_back({family, true, std::move(key), {}});
  }

  const std::vector<Step>& steps() const { return steps_; }
  bool empty() const { return steps_.empty(); }

 private:
  std::vector<Step> steps_;
  std::deque<std::string> owned_;  // a deque: its elements stay where they are
};

class KeyValueEngine {
 public:
  virtual ~KeyValueEngine() = default;

  // Calls use with the value, which is valid during the call only.
  virtual absl::Status Get(Family family, std::string_view key,
                           absl::FunctionRef<void(std::string_view)> use) = 0;

  // After UNAVAILABLE the set was either not applied, or will be seen whole after a restart.
  virtual absl::Status Write(const WriteSet& writes, Durability durability) = 0;

  // Visits keys >= from that start with prefix, in byte order, until visit returns false. Keys and
  // values are valid during the call only; visit must not call the engine. Sees at least what was
  // written before the call. DATA_LOSS if something was unreadable, after visiting all that was
  // not.
  virtual absl::Status Scan(
      Family family, std::string_view prefix, std::string_view from,
      absl::FunctionRef<bool(std::string_view key, std::string_view value)> visit) = 0;

  // True once after the engine met damage by itself: somebody should read all parts, and delete
  // what is damaged.
  virtual bool TakeDamageSuspicion() { return false; }
};

std::unique_ptr<KeyValueEngine> NewMemoryEngine();

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_KEY_VALUE_ENGINE_H_
