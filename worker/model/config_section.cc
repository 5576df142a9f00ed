#include "worker/model/config_section.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {

using nlohmann::json;

absl::Status ConfigFault(const std::string& key, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("config.json: ", key, " ", what));
}

bool IsIntegerIn(const json& value, int64_t low, int64_t high) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    return number <= static_cast<uint64_t>(high) && static_cast<int64_t>(number) >= low;
  }
  const int64_t number = value.get<int64_t>();
  return number >= low && number <= high;
}

const json* ConfigSection::Find(const std::string& key) const {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::Status ConfigSection::ReadInteger(const std::string& key, int64_t low, int64_t high,
                                        int64_t* out) const {
  const json* value = Find(key);
  if (value == nullptr) return ConfigFault(Name(key), "is missing");
  if (!IsIntegerIn(*value, low, high)) {
    return ConfigFault(Name(key), absl::StrCat("must be an integer in [", low, ", ", high, "]"));
  }
  *out = value->get<int64_t>();
  return absl::OkStatus();
}

absl::Status ConfigSection::ReadNumber(const std::string& key, double low, double high,
                                       bool low_included, double* out) const {
  const json* value = Find(key);
  if (value == nullptr) return ConfigFault(Name(key), "is missing");
  const double number = value->is_number() ? value->get<double>() : low - 1.0;
  const bool inside =
      low_included ? number >= low && number < high : number > low && number <= high;
  if (!inside) {
    return ConfigFault(Name(key), absl::StrCat("must be a number in ", low_included ? "[" : "(",
                                               low, ", ", high, low_included ? ")" : "]"));
  }
  *out = number;
  return absl::OkStatus();
}

absl::Status ConfigSection::ReadOptionalInteger(const std::string& key, int64_t low, int64_t high,
                                                int64_t* out) const {
  return Find(key) == nullptr ? absl::OkStatus() : ReadInteger(key, low, high, out);
}

absl::Status ConfigSection::ReadOptionalNumber(const std::string& key, double low, double high,
                                               bool low_included, double* out) const {
  return Find(key) == nullptr ? absl::OkStatus() : ReadNumber(key, low, high, low_included, out);
}

absl::Status ConfigSection::ReadOptionalBool(const std::string& key, bool* out) const {
  const json* value = Find(key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_boolean()) return ConfigFault(Name(key), "must be true or false");
  *out = value->get<bool>();
  return absl::OkStatus();
}

absl::Status ConfigSection::RequireBool(const std::string& key, bool built) const {
  bool value = built;
  DELTAFILL_TRY(ReadOptionalBool(key, &value));
  if (value == built) return absl::OkStatus();
  return ConfigFault(
      Name(key), built ? "is false; only true is supported" : "is true; only false is supported");
}

absl::Status ConfigSection::RequireText(const std::string& key, const std::string& text) const {
  const json* value = Find(key);
  if (value == nullptr || *value == text) return absl::OkStatus();
  return ConfigFault(Name(key), absl::StrCat("must be \"", text, "\""));
}

absl::Status ConfigSection::RequireAbsent(const std::string& key) const {
  if (Find(key) == nullptr) return absl::OkStatus();
  return ConfigFault(Name(key), "is set; only null is supported");
}

}  // namespace deltafill::worker
