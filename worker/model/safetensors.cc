#include "worker/model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"
#include "worker/model/strict_json.h"

namespace deltafill::worker {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "tensors are used as they lie in the file");

constexpr uint64_t kLengthBytes = 8;

struct ElementSize {
  std::string_view dtype;
  size_t bytes;
};
constexpr ElementSize kElementSizes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
    {"F32", 4},  {"I64", 8}, {"U64", 8}, {"F64", 8},     {"C64", 8},
};

absl::Status Loss(const std::string& file, const std::string& what) {
  return absl::DataLossError(absl::StrCat(file, ": ", what));
}

bool IsSize(const json& value) { return value.is_number_unsigned(); }

// Reads one member of the header. Faults are said without file and tensor; the caller adds them.
absl::Status ReadEntry(const json& member, uint64_t payload_start, uint64_t file_bytes,
                       TensorEntry* entry) {
  if (!member.is_object() || member.size() != 3 || !member.contains("dtype") ||
      !member.contains("shape") || !member.contains("data_offsets")) {
    return absl::DataLossError("needs exactly dtype, shape and data_offsets");
  }
  const json& dtype = member["dtype"];
  const json& shape = member["shape"];
  const json& offsets = member["data_offsets"];
  if (!dtype.is_string()) return absl::DataLossError("dtype is not a string");
  entry->dtype = dtype.get<std::string>();
  const size_t element_bytes = TensorElementBytes(entry->dtype);
  if (element_bytes == 0) return absl::DataLossError("dtype is not known");
  if (!shape.is_array() || shape.size() > kTensorDimsMax) {
    return absl::DataLossError(absl::StrCat("shape is not a list of at most ", kTensorDimsMax));
  }
  for (const json& dim : shape) {
    if (!IsSize(dim) || dim.get<uint64_t>() > uint64_t{1} << 62) {
      return absl::DataLossError("shape has a dim that is not a size");
    }
    entry->shape.push_back(dim.get<int64_t>());
  }
  if (!offsets.is_array() || offsets.size() != 2 || !IsSize(offsets[0]) || !IsSize(offsets[1])) {
    return absl::DataLossError("data_offsets is not a pair of sizes");
  }
  const uint64_t begin = offsets[0].get<uint64_t>();
  const uint64_t end = offsets[1].get<uint64_t>();
  if (begin > end || end > file_bytes - payload_start) {
    return absl::DataLossError(absl::StrCat("data_offsets [", begin, ", ", end,
                                            ") are outside the file's ", file_bytes - payload_start,
                                            " bytes of tensors"));
  }
  const std::optional<uint64_t> elements = ElementCount(entry->shape);
  if (!elements.has_value() || *elements > (uint64_t{1} << 62) / element_bytes ||
      *elements * element_bytes != end - begin) {
    return absl::DataLossError(
        absl::StrCat("shape and dtype do not give the ", end - begin, " bytes of data_offsets"));
  }
  entry->begin = payload_start + begin;
  entry->end = payload_start + end;
  return absl::OkStatus();
}

absl::Status ReadMetadata(const json& member, std::map<std::string, std::string>* metadata) {
  if (!member.is_object()) return absl::DataLossError("__metadata__ is not an object");
  for (const auto& [key, value] : member.items()) {
    if (!value.is_string())
      return absl::DataLossError("__metadata__ has a value that is no string");
    metadata->emplace(key, value.get<std::string>());
  }
  return absl::OkStatus();
}

// Tensors must follow each other from the header to the end of the file.
absl::Status CheckCover(std::vector<TensorEntry>& tensors, uint64_t payload_start,
                        uint64_t file_bytes, const std::string& file_name) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t expected = payload_start;
  for (const TensorEntry& entry : tensors) {
    if (entry.begin != expected) {
      return Loss(file_name,
                  absl::StrCat("tensor '", entry.name, "' ",
                               entry.begin < expected ? "overlaps" : "leaves a gap after",
                               " the one before it"));
    }
    expected = entry.end;
  }
  if (expected != file_bytes) {
    return Loss(file_name, absl::StrCat("tensors end at byte ", expected, " of ", file_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

size_t TensorElementBytes(std::string_view dtype) {
  for (const ElementSize& size : kElementSizes) {
    if (size.dtype == dtype) return size.bytes;
  }
  return 0;
}

std::optional<kernels::DType> KernelDType(std::string_view dtype) {
  if (dtype == "F32") return kernels::DType::kF32;
  if (dtype == "BF16") return kernels::DType::kBF16;
  if (dtype == "F16") return kernels::DType::kF16;
  return std::nullopt;
}

std::string_view TensorDTypeName(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::kBF16:
      return "BF16";
    case kernels::DType::kF16:
      return "F16";
    case kernels::DType::kF32:
      break;
  }
  return "F32";
}

std::optional<uint64_t> ElementCount(std::span<const int64_t> shape) {
  constexpr uint64_t kCountMax = uint64_t{1} << 62;
  uint64_t count = 1;
  for (int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    if (dim != 0 && count > kCountMax / static_cast<uint64_t>(dim)) return std::nullopt;
    count *= static_cast<uint64_t>(dim);
  }
  return count;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensors(std::string_view file,
                                                   const std::string& file_name) {
  if (file.size() < kLengthBytes) return Loss(file_name, "shorter than a safetensors header");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  if (header_bytes > kSafetensorsHeaderBytesMax) {
    return Loss(file_name, absl::StrCat("header length ", header_bytes, " is over the limit of ",
                                        kSafetensorsHeaderBytesMax));
  }
  if (header_bytes > file.size() - kLengthBytes) {
    return Loss(file_name, absl::StrCat("header length ", header_bytes, " is past the file's end"));
  }
  const std::string_view text = file.substr(kLengthBytes, header_bytes);
  if (text.empty() || text.front() != '{') return Loss(file_name, "header does not start with '{'");
  auto document = ParseStrictJson(text);
  if (!document.ok()) return Loss(file_name, "header: " + std::string(document.status().message()));

  SafetensorsHeader header;
  const uint64_t payload_start = kLengthBytes + header_bytes;
  for (const auto& [name, member] : document->items()) {
    if (name == "__metadata__") {
      const absl::Status status = ReadMetadata(member, &header.metadata);
      if (!status.ok()) return Loss(file_name, std::string(status.message()));
      continue;
    }
    if (name.size() > kTensorNameBytesMax) {
      return Loss(file_name, absl::StrCat("a tensor name is over ", kTensorNameBytesMax, " bytes"));
    }
    TensorEntry entry;
    entry.name = name;
    const absl::Status status = ReadEntry(member, payload_start, file.size(), &entry);
    if (!status.ok()) {
      return Loss(file_name, absl::StrCat("tensor '", name, "': ", std::string(status.message())));
    }
    header.tensors.push_back(std::move(entry));
  }
  DELTAFILL_TRY(CheckCover(header.tensors, payload_start, file.size(), file_name));
  return header;
}

}  // namespace deltafill::worker
