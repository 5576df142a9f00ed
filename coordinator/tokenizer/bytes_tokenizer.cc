#include "coordinator/tokenizer/bytes_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace deltafill::coordinator {
namespace {

constexpr uint32_t kByteIds = 256;
constexpr size_t kSpecialsMax = 65536;
constexpr size_t kSpecialBytesMax = 1024;

using Specials = std::vector<std::pair<std::string, uint32_t>>;  // longest first

class BytesDecoder final : public TokenDecoder {
 public:
  std::string Push(uint32_t id) override {
    return id < kByteIds ? std::string(1, static_cast<char>(id)) : std::string();
  }
};

class BytesTokenizer final : public Tokenizer {
 public:
  explicit BytesTokenizer(Specials specials) : specials_(std::move(specials)) {}

  absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text,
                                               bool allow_special) const override {
    std::vector<uint32_t> ids;
    ids.reserve(text.size());
    while (!text.empty()) {
      const std::pair<std::string, uint32_t>* special = allow_special ? Match(text) : nullptr;
      if (special != nullptr) {
        ids.push_back(special->second);
        text.remove_prefix(special->first.size());
      } else {
        ids.push_back(static_cast<uint8_t>(text.front()));
        text.remove_prefix(1);
      }
    }
    return ids;
  }

  std::unique_ptr<TokenDecoder> NewDecoder() const override {
    return std::make_unique<BytesDecoder>();
  }

 private:
  const std::pair<std::string, uint32_t>* Match(std::string_view text) const {
    for (const auto& special : specials_) {
      if (text.substr(0, special.first.size()) == special.first) return &special;
    }
    return nullptr;
  }

  const Specials specials_;
};

absl::Status Malformed(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer file: ", what));
}

absl::StatusOr<Specials> ReadSpecials(const nlohmann::json& table) {
  if (!table.is_object()) return Malformed("special_tokens must be an object of text: id");
  if (table.size() > kSpecialsMax) {
    return Malformed(absl::StrCat("special_tokens: more than ", kSpecialsMax));
  }
  Specials specials;
  for (const auto& [text, id] : table.items()) {
    if (text.empty() || text.size() > kSpecialBytesMax) {
      return Malformed(
          absl::StrCat("special_tokens: a text has 1 to ", kSpecialBytesMax, " bytes"));
    }
    if (!id.is_number_unsigned() || id.get<uint64_t>() < kByteIds ||
        id.get<uint64_t>() > UINT32_MAX) {
      return Malformed(
          absl::StrCat("special_tokens: an id is a whole number from ", kByteIds, " on"));
    }
    specials.emplace_back(text, id.get<uint32_t>());
  }
  std::stable_sort(specials.begin(), specials.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  return specials;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> NewBytesTokenizer(std::string_view file) {
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Malformed("must be a JSON object");
  if (const auto kind = json.find("kind"); kind != json.end() && *kind != "bytes") {
    return Malformed("kind must be \"bytes\"");
  }
  Specials specials;
  if (const auto table = json.find("special_tokens"); table != json.end()) {
    absl::StatusOr<Specials> read = ReadSpecials(*table);
    if (!read.ok()) return read.status();
    specials = *std::move(read);
  }
  return std::make_shared<BytesTokenizer>(std::move(specials));
}

}  // namespace deltafill::coordinator
