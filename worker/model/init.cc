#include "worker/model/init.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/model/init_config.h"
#include "worker/model/init_tensors.h"
#include "worker/model/model_directory.h"
#include "worker/model/parallel_steps.h"
#include "worker/model/safetensors.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kShardBytesMax = uint64_t{1} << 30;
constexpr uint64_t kPieceValues = uint64_t{1} << 20;
constexpr uint64_t kSpareBytes = uint64_t{16} << 20;  // headers, index and texts
constexpr uint64_t kPiecesAtOnce = 32;                // made in parallel, written in order

std::string MadeBy(const ModelPreset& preset, std::optional<uint64_t> seed) {
  if (seed.has_value()) {
    return absl::StrCat("Made by `deltafill model init --preset ", preset.name, " --seed ", *seed,
                        "`. Its weights are random numbers: it has learnt nothing, and\n");
  }
  return absl::StrCat("Made by `deltafill model init --preset ", preset.name,
                      " --config-only`. It has no weights: start it with\n"
                      "`--random-weights SEED`. Such a model has learnt nothing, and\n");
}

// seed: of the weights; none: there are no weights.
absl::Status WriteTexts(const ModelPreset& preset, std::optional<uint64_t> seed,
                        const std::string& directory) {
  const ModelConfig& config = preset.config;
  const ordered_json generation = {{"bos_token_id", kInitBosId},
                                   {"eos_token_id", config.eos_ids.front()},
                                   {"pad_token_id", kInitPadId}};
  const ordered_json tokenizer = {
      {"kind", "bytes"},
      {"special_tokens",
       {{"<bos>", kInitBosId}, {"<eos>", config.eos_ids.front()}, {"<pad>", kInitPadId}}}};
  const std::string readme = absl::StrCat(
      "# ", preset.name, ": an untrained model\n\n", MadeBy(preset, seed),
      "what it decodes is noise. It "
      "is for trying out, testing and timing the service.\n\nText is tokenized by bytes "
      "(`deltafill_tokenizer.json`): token id b is the byte b;\n256 is <bos>, 257 <eos>, 258 "
      "<pad>.\n");
  DELTAFILL_TRY(WriteFileAtomically(directory + "/config.json", InitialConfigText(config)));
  DELTAFILL_TRY(
      WriteFileAtomically(directory + "/generation_config.json", generation.dump(2) + "\n"));
  DELTAFILL_TRY(
      WriteFileAtomically(directory + "/" + kTokenizerFileName, tokenizer.dump(2) + "\n"));
  return WriteFileAtomically(directory + "/README.md", readme);
}

// Tensors in order, cut where a shard would pass its limit.
std::vector<std::vector<InitialTensor>> CutShards(const std::vector<InitialTensor>& tensors) {
  std::vector<std::vector<InitialTensor>> shards;
  uint64_t bytes = kShardBytesMax;
  for (const InitialTensor& tensor : tensors) {
    const uint64_t tensor_bytes = TensorBytes(tensor.plan);
    if (bytes + tensor_bytes > kShardBytesMax || shards.empty()) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(tensor);
    bytes += tensor_bytes;
  }
  return shards;
}

// Up to kPiecesAtOnce pieces from value `first` on.
absl::Status WritePieces(const InitialTensor& tensor, uint64_t seed, uint64_t first, uint64_t count,
                         SafetensorsWriter* writer) {
  const uint64_t left = count - first;
  const uint64_t pieces = std::min(kPiecesAtOnce, (left + kPieceValues - 1) / kPieceValues);
  std::vector<std::vector<std::byte>> bytes(pieces);
  DELTAFILL_TRY(RunParallelSteps(static_cast<int64_t>(pieces), [&](int64_t index) {
    const uint64_t skipped = static_cast<uint64_t>(index) * kPieceValues;
    bytes[static_cast<size_t>(index)] =
        InitialBytes(tensor, seed, first + skipped, std::min(kPieceValues, left - skipped));
    return absl::OkStatus();
  }));
  for (const std::vector<std::byte>& piece : bytes) DELTAFILL_TRY(writer->Append(piece));
  return absl::OkStatus();
}

absl::Status WriteShard(const std::vector<InitialTensor>& tensors, uint64_t seed,
                        const std::string& path) {
  std::vector<TensorPlan> plans;
  for (const InitialTensor& tensor : tensors) plans.push_back(tensor.plan);
  DELTAFILL_TRY_ASSIGN(writer, SafetensorsWriter::Create(path, plans, {{"format", "pt"}}));
  for (const InitialTensor& tensor : tensors) {
    const uint64_t count = *ElementCount(tensor.plan.shape);
    for (uint64_t first = 0; first < count; first += kPieceValues * kPiecesAtOnce) {
      DELTAFILL_TRY(WritePieces(tensor, seed, first, count, writer.get()));
    }
  }
  return writer->Finish();
}

absl::Status WriteWeights(const ModelConfig& config, uint64_t seed, const std::string& directory) {
  const auto shards = CutShards(PlanInitialTensors(config));
  if (shards.size() == 1) {
    return WriteShard(shards.front(), seed, directory + "/model.safetensors");
  }
  ordered_json places = ordered_json::object();
  uint64_t total_bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
    DELTAFILL_TRY(WriteShard(shards[i], seed, directory + "/" + name));
    for (const InitialTensor& tensor : shards[i]) {
      places[tensor.plan.name] = name;
      total_bytes += TensorBytes(tensor.plan);
    }
  }
  const ordered_json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", places}};
  return WriteFileAtomically(directory + "/model.safetensors.index.json", index.dump(2) + "\n");
}

absl::Status MakeEmptyDirectory(const std::string& directory) {
  std::error_code error;
  const bool taken = std::filesystem::exists(directory, error) &&
                     (!std::filesystem::is_directory(directory, error) ||
                      !std::filesystem::is_empty(directory, error));
  if (taken) {
    return absl::AlreadyExistsError(absl::StrCat(directory, ": must be an empty directory"));
  }
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat(directory, ": cannot be created: ", error.message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> InitialModelBytes(std::string_view preset_name) {
  DELTAFILL_TRY_ASSIGN(preset, FindModelPreset(preset_name));
  return InitialTensorBytes(preset.config);
}

absl::Status InitModelConfig(std::string_view preset_name, const std::string& directory) {
  DELTAFILL_TRY_ASSIGN(preset, FindModelPreset(preset_name));
  DELTAFILL_TRY(MakeEmptyDirectory(directory));
  return WriteTexts(preset, std::nullopt, directory);
}

absl::Status InitModel(std::string_view preset_name, uint64_t seed, const std::string& directory) {
  DELTAFILL_TRY_ASSIGN(preset, FindModelPreset(preset_name));
  DELTAFILL_TRY(MakeEmptyDirectory(directory));
  DELTAFILL_TRY_ASSIGN(bytes, InitialModelBytes(preset_name));
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (!error && space.available < bytes + kSpareBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(directory, ": preset ", preset.name, " needs ",
                                                     bytes + kSpareBytes, " bytes, and ",
                                                     space.available, " are free"));
  }
  DELTAFILL_TRY(WriteTexts(preset, seed, directory));
  return WriteWeights(preset.config, seed, directory);
}

}  // namespace deltafill::worker
