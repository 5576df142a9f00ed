#include "worker/model/strict_json.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace deltafill::worker {
namespace {

using nlohmann::json;

// Builds the document and refuses what the library would let through. Returning false stops.
class StrictReader : public nlohmann::json_sax<json> {
 public:
  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t&) override { return Put(value); }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t&) override { return Fail("binary value"); }
  bool start_object(std::size_t) override { return Open(json::object()); }
  bool start_array(std::size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (!open_.back()->is_object()) return Fail("key outside an object");
    if (open_.back()->contains(name)) return Fail(absl::StrCat("key '", name, "' twice"));
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("not valid JSON at byte ", position));
  }

  json& root() { return root_; }
  const std::string& fault() const { return fault_; }

 private:
  bool Fail(std::string fault) {
    if (fault_.empty()) fault_ = std::move(fault);
    return false;
  }

  template <typename Value>
  json* Place(Value&& value) {
    if (open_.empty()) {
      root_ = std::forward<Value>(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(json(std::forward<Value>(value)));
      return &open_.back()->back();
    }
    json& member = (*open_.back())[key_];
    member = std::forward<Value>(value);
    return &member;
  }

  template <typename Value>
  bool Put(Value&& value) {
    Place(std::forward<Value>(value));
    return true;
  }

  bool Open(json container) {
    if (open_.size() >= kJsonDepthMax) {
      return Fail(absl::StrCat("nested deeper than ", kJsonDepthMax));
    }
    open_.push_back(Place(std::move(container)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  json root_;
  std::vector<json*>
      open_;  // containers not yet closed; pointers stay valid while they are the last
  std::string key_;
  std::string fault_;
};

}  // namespace

absl::StatusOr<json> ParseStrictJson(std::string_view text) {
  StrictReader reader;
  if (!json::sax_parse(text.begin(), text.end(), &reader)) {
    return absl::InvalidArgumentError(reader.fault().empty() ? "not valid JSON" : reader.fault());
  }
  return std::move(reader.root());
}

}  // namespace deltafill::worker
