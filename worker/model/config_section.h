// Reading one JSON object of config.json: every fault names its key and the limit.
#ifndef DELTAFILL_WORKER_MODEL_CONFIG_SECTION_H_
#define DELTAFILL_WORKER_MODEL_CONFIG_SECTION_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"

namespace deltafill::worker {

// INVALID_ARGUMENT: "config.json: KEY WHAT".
absl::Status ConfigFault(const std::string& key, const std::string& what);

// One JSON object and the name its keys are reported under. The object outlives it.
struct ConfigSection {
  const nlohmann::json& object;
  std::string prefix;

  // nullptr if the key is absent or null.
  const nlohmann::json* Find(const std::string& key) const;
  std::string Name(const std::string& key) const { return prefix + key; }

  // An integer in [low, high].
  absl::Status ReadInteger(const std::string& key, int64_t low, int64_t high, int64_t* out) const;

  // A number in (low, high], or in [low, high) if `low_included`.
  absl::Status ReadNumber(const std::string& key, double low, double high, bool low_included,
                          double* out) const;

  // As above; *out stays as it is if the key is absent.
  absl::Status ReadOptionalInteger(const std::string& key, int64_t low, int64_t high,
                                   int64_t* out) const;
  absl::Status ReadOptionalNumber(const std::string& key, double low, double high,
                                  bool low_included, double* out) const;
  absl::Status ReadOptionalBool(const std::string& key, bool* out) const;

  // A switch of which only one setting is built. Absent means that setting.
  absl::Status RequireBool(const std::string& key, bool built) const;
  // A word of which only one is built. Absent means that word.
  absl::Status RequireText(const std::string& key, const std::string& text) const;
  // A key that must be absent or null: what it asks for is not built.
  absl::Status RequireAbsent(const std::string& key) const;
};

// Whether `value` is an integer in [low, high].
bool IsIntegerIn(const nlohmann::json& value, int64_t low, int64_t high);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_CONFIG_SECTION_H_
