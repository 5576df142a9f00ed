// The in-memory engine: two ordered maps. Values are shared, so that readers never hold the lock
// while they look at one.
#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "statestore/key_value_engine.h"

namespace deltafill {
namespace {

class MemoryEngine final : public KeyValueEngine {
 public:
  absl::Status Get(Family family, std::string_view key,
                   absl::FunctionRef<void(std::string_view)> use) override {
    std::shared_ptr<const std::string> value;
    {
      std::shared_lock lock(mutex_);
      const auto found = Map(family).find(key);
      if (found == Map(family).end()) return absl::NotFoundError("no such key");
      value = found->second;
    }
    use(*value);
    return absl::OkStatus();
  }

  absl::Status Write(const WriteSet& writes, Durability) override {
    std::vector<std::shared_ptr<const std::string>> values;
    values.reserve(writes.steps().size());
    for (const WriteSet::Step& step : writes.steps()) {
      values.push_back(step.removes ? nullptr : std::make_shared<const std::string>(step.value));
    }
    std::unique_lock lock(mutex_);
    for (size_t i = 0; i < values.size(); ++i) {
      const WriteSet::Step& step = writes.steps()[i];
      if (step.removes) {
        Map(step.family).erase(step.key);
      } else {
        Map(step.family)[step.key] = std::move(values[i]);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Scan(Family family, std::string_view prefix, std::string_view from,
                    absl::FunctionRef<bool(std::string_view, std::string_view)> visit) override {
    std::shared_lock lock(mutex_);
    for (auto it = Map(family).lower_bound(std::max(prefix, from)); it != Map(family).end(); ++it) {
      if (!it->first.starts_with(prefix) || !visit(it->first, *it->second)) break;
    }
    return absl::OkStatus();
  }

 private:
  using KeyMap = std::map<std::string, std::shared_ptr<const std::string>, std::less<>>;

  KeyMap& Map(Family family) { return family == Family::kMeta ? meta_ : parts_; }

  std::shared_mutex mutex_;
  KeyMap meta_;   // guarded by mutex_
  KeyMap parts_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<KeyValueEngine> NewMemoryEngine() { return std::make_unique<MemoryEngine>(); }

}  // namespace deltafill
