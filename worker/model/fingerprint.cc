#include "worker/model/fingerprint.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "statestore/sha256.h"
#include "worker/model/parallel_steps.h"
#include "worker/model/safetensors_writer.h"
#include "worker/model/strict_json.h"

namespace deltafill::worker {
namespace {

using nlohmann::json;

constexpr int kCacheVersion = 1;

void UpdateU64(Sha256& hash, uint64_t value) {
  uint8_t bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
  hash.Update(std::as_bytes(std::span(bytes)));
}

// Lengths first, so that no two inputs run together to the same bytes.
void UpdateText(Sha256& hash, std::string_view text) {
  UpdateU64(hash, text.size());
  hash.Update(text);
}

std::string Hexadecimal(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%a", value);
  return text;
}

// What the cached fingerprint is valid for.
json MakeGuard(const ModelConfig& config, const Checkpoint& checkpoint) {
  json files = json::array();
  for (const auto& file : checkpoint.files()) {
    files.push_back({{"name", std::filesystem::path(file->path()).filename().string()},
                     {"bytes", file->bytes().size()},
                     {"modified_ns", file->modified_ns()}});
  }
  return {{"version", kCacheVersion},
          {"architecture", CanonicalArchitecture(config)},
          {"files", std::move(files)}};
}

bool ReadCache(const std::string& path, const json& guard, ModelFingerprint* fingerprint) {
  auto file = MappedFile::Open(path);
  if (!file.ok() || (*file)->bytes().size() > (size_t{16} << 20)) return false;
  auto cached = ParseStrictJson((*file)->text());
  if (!cached.ok() || !cached->is_object() || !cached->contains("fingerprint") ||
      !(*cached)["fingerprint"].is_string() || !cached->contains("guard")) {
    return false;
  }
  const std::string hex = (*cached)["fingerprint"].get<std::string>();
  if ((*cached)["guard"] != guard || hex.size() != 64) return false;
  for (char c : hex) {
    if (std::string_view("0123456789abcdef").find(c) == std::string_view::npos) return false;
  }
  return ModelFingerprint::FromBytes(absl::HexStringToBytes(hex), fingerprint);
}

// What follows is written for models that have it, so that those without it keep the fingerprints
// that they had before it was known.

void AppendHeads(const ModelConfig& config, std::string* text) {
  if (config.kda_value_heads == config.kda_heads &&
      config.kda_value_head_dim == config.kda_head_dim) {
    return;
  }
  absl::StrAppend(text, "\nkda_value_heads=", config.kda_value_heads,
                  "\nkda_value_head_dim=", config.kda_value_head_dim);
}

void AppendLatentAttention(const ModelConfig& config, std::string* text) {
  if (!config.HasLatentAttention()) return;
  const LatentAttentionConfig& latent = config.latent;
  absl::StrAppend(text, "\nlatent_heads=", latent.heads, "\nlatent_nope_dim=", latent.nope_dim,
                  "\nlatent_rope_dim=", latent.rope_dim, "\nlatent_value_dim=", latent.value_dim,
                  "\nlatent_rank=", latent.rank,
                  "\nlatent_norm_eps=", Hexadecimal(latent.norm_eps));
}

void AppendExperts(const ModelConfig& config, std::string* text) {
  if (!config.HasExperts()) return;
  const ExpertsConfig& experts = config.experts;
  absl::StrAppend(text, "\nexperts=", experts.count, "\nexperts_per_token=", experts.per_token,
                  "\nexpert_width=", experts.width, "\nshared_experts=", experts.shared,
                  "\nrenormalize=", experts.renormalize ? 1 : 0,
                  "\nbiased_expert_weights=", experts.biased_weights ? 1 : 0,
                  "\nrouted_scale=", Hexadecimal(experts.routed_scale));
}

}  // namespace

std::string CanonicalArchitecture(const ModelConfig& config) {
  std::string text = absl::StrCat(
      "model_type=", config.model_type, "\nvocab_size=", config.vocab_size,
      "\nhidden_size=", config.hidden_size, "\nintermediate_size=", config.intermediate_size,
      "\nkda_heads=", config.kda_heads, "\nkda_head_dim=", config.kda_head_dim,
      "\nconv_kernel_size=", config.conv_kernel_size, "\nrms_norm_eps=");
  absl::StrAppend(&text, Hexadecimal(config.rms_norm_eps), "\ngate=",
                  config.gate == KdaGate::kSoftplus
                      ? "softplus"
                      : "lower_bound " + Hexadecimal(config.gate_lower_bound),
                  "\ntie_word_embeddings=", config.tie_word_embeddings ? 1 : 0, "\nlayers=");
  for (const LayerConfig& layer : config.layers) {
    absl::StrAppend(&text, layer.mixer == MixerKind::kKda ? "k" : "a",
                    layer.mlp == MlpKind::kDense ? "d" : "m");
  }
  AppendHeads(config, &text);
  AppendLatentAttention(config, &text);
  AppendExperts(config, &text);
  return text + "\n";
}

ModelFingerprint ComputeFingerprint(const ModelConfig& config, const Checkpoint& checkpoint,
                                    const LogLine& log) {
  std::vector<const CheckpointTensor*> tensors;
  for (const auto& [name, tensor] : checkpoint.tensors()) tensors.push_back(&tensor);
  LoadProgress progress("fingerprint", checkpoint.TensorBytes(), log);
  std::vector<std::array<uint8_t, 32>> contents(tensors.size());
  RunParallelSteps(static_cast<int64_t>(tensors.size()), [&](int64_t index) {
    Sha256 hash;
    hash.Update(tensors[static_cast<size_t>(index)]->bytes());
    contents[static_cast<size_t>(index)] = hash.Finish();
    progress.Add(tensors[static_cast<size_t>(index)]->bytes().size());
    return absl::OkStatus();
  }).IgnoreError();
  progress.Finish();
  Sha256 whole;
  UpdateText(whole, "deltafill.model.1");
  UpdateText(whole, CanonicalArchitecture(config));
  UpdateU64(whole, tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorEntry& entry = tensors[i]->entry;
    UpdateText(whole, entry.name);
    UpdateText(whole, entry.dtype);
    UpdateU64(whole, entry.shape.size());
    for (int64_t dim : entry.shape) UpdateU64(whole, static_cast<uint64_t>(dim));
    whole.Update(std::as_bytes(std::span(contents[i])));
  }
  ModelFingerprint fingerprint;
  fingerprint.bytes = whole.Finish();
  return fingerprint;
}

ModelFingerprint CachedFingerprint(const ModelConfig& config, const Checkpoint& checkpoint,
                                   const LogLine& log) {
  const std::string path = checkpoint.directory() + "/" + kFingerprintFileName;
  const json guard = MakeGuard(config, checkpoint);
  ModelFingerprint fingerprint;
  if (ReadCache(path, guard, &fingerprint)) return fingerprint;
  fingerprint = ComputeFingerprint(config, checkpoint, log);
  const json cached = {{"fingerprint", fingerprint.ToHex()}, {"guard", guard}};
  // A directory that cannot be written only costs the next start this computation.
  WriteFileAtomically(path, cached.dump(1) + "\n").IgnoreError();
  return fingerprint;
}

}  // namespace deltafill::worker
