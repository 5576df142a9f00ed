#include "worker/model/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"
#include "worker/model/strict_json.h"

namespace deltafill::worker {
namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr char kSingleName[] = "model.safetensors";
constexpr size_t kIndexBytesMax = size_t{100} << 20;
constexpr size_t kShardsMax = 4096;

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// Tensor name -> file name.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  DELTAFILL_TRY_ASSIGN(file, MappedFile::Open(path));
  if (file->bytes().size() > kIndexBytesMax) {
    return absl::DataLossError(absl::StrCat(path, ": over ", kIndexBytesMax, " bytes"));
  }
  auto document = ParseStrictJson(file->text());
  if (!document.ok()) {
    return absl::DataLossError(absl::StrCat(path, ": ", document.status().message()));
  }
  if (!document->is_object() || !document->contains("weight_map") ||
      !(*document)["weight_map"].is_object()) {
    return absl::DataLossError(absl::StrCat(path, ": weight_map must be an object"));
  }
  std::map<std::string, std::string> index;
  for (const auto& [tensor, shard] : (*document)["weight_map"].items()) {
    if (!shard.is_string() || !IsPlainFileName(shard.get<std::string>())) {
      return absl::DataLossError(
          absl::StrCat(path, ": tensor '", tensor, "' is not mapped to a file of the directory"));
    }
    index.emplace(tensor, shard.get<std::string>());
  }
  return index;
}

std::vector<std::string> ListShards(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".safetensors") names.push_back(entry->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& directory) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->directory_ = directory;
  std::error_code error;
  const std::string index_path = directory + "/" + kIndexName;
  if (std::filesystem::exists(index_path, error)) {
    DELTAFILL_TRY(checkpoint->OpenIndexed(index_path));
    return checkpoint;
  }
  std::vector<std::string> shards = {kSingleName};
  if (!std::filesystem::exists(directory + "/" + kSingleName, error)) {
    shards = ListShards(directory);
  }
  if (shards.empty()) {
    return absl::NotFoundError(absl::StrCat(directory, ": no safetensors files"));
  }
  if (shards.size() > kShardsMax) {
    return absl::DataLossError(absl::StrCat(directory, ": over ", kShardsMax, " shards"));
  }
  for (const std::string& shard : shards) {
    DELTAFILL_TRY(checkpoint->OpenShard(shard, nullptr));
  }
  return checkpoint;
}

absl::Status Checkpoint::OpenIndexed(const std::string& index_path) {
  DELTAFILL_TRY_ASSIGN(index, ReadIndex(index_path));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : index) shards.insert(shard);
  if (shards.size() > kShardsMax) {
    return absl::DataLossError(absl::StrCat(index_path, ": over ", kShardsMax, " shards"));
  }
  for (const std::string& shard : shards) {
    const absl::Status status = OpenShard(shard, &index);
    if (absl::IsNotFound(status)) {
      return absl::DataLossError(absl::StrCat(index_path, ": shard ", shard, " is missing"));
    }
    DELTAFILL_TRY(status);
  }
  for (const auto& [tensor, shard] : index) {
    if (tensors_.count(tensor) == 0) {
      return absl::DataLossError(
          absl::StrCat(directory_, "/", shard, ": tensor '", tensor, "' of the index is missing"));
    }
  }
  return absl::OkStatus();
}

// With an index, only the tensors that it places in this shard count.
absl::Status Checkpoint::OpenShard(const std::string& file_name,
                                   const std::map<std::string, std::string>* index) {
  DELTAFILL_TRY_ASSIGN(file, MappedFile::Open(directory_ + "/" + file_name));
  DELTAFILL_TRY_ASSIGN(header, ParseSafetensors(file->text(), file->path()));
  for (TensorEntry& entry : header.tensors) {
    if (index != nullptr) {
      const auto placed = index->find(entry.name);
      if (placed == index->end() || placed->second != file_name) continue;
    }
    const std::string name = entry.name;
    const auto [known, added] =
        tensors_.emplace(name, CheckpointTensor{std::move(entry), file.get()});
    if (!added) {
      return absl::DataLossError(absl::StrCat(file->path(), ": tensor '", name, "' is also in ",
                                              known->second.file->path()));
    }
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

uint64_t Checkpoint::TensorBytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) bytes += tensor.bytes().size();
  return bytes;
}

absl::StatusOr<const CheckpointTensor*> Checkpoint::Get(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return absl::DataLossError(absl::StrCat(directory_, ": tensor '", name, "' is missing"));
  }
  return &found->second;
}

}  // namespace deltafill::worker
