#include "worker/model/init_tensors.h"

#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/float_formats.h"
#include "worker/model/safetensors.h"
#include "worker/model/tensor_names.h"

namespace deltafill::worker {
namespace {

// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t WordAt(uint64_t stream, uint64_t index) {
  return Mix(stream + (index + 1) * 0x9e3779b97f4a7c15u);
}

// Uniform in [0, 1).
double UniformAt(uint64_t stream, uint64_t index) {
  return static_cast<double>(WordAt(stream, index) >> 11) * 0x1p-53;
}

// Nearly normal, unit variance: the sum of four uniform 16-bit numbers. Exact integers, so it is
// the same everywhere.
double NormalAt(uint64_t stream, uint64_t index) {
  const uint64_t word = WordAt(stream, index);
  int64_t sum = 0;
  for (int shift = 0; shift < 64; shift += 16)
    sum += static_cast<int64_t>((word >> shift) & 0xffff);
  constexpr double kMean = 2.0 * 65535.0;
  constexpr double kDeviation = 37837.22;  // sqrt(4 (65536^2 - 1) / 12)
  return (static_cast<double>(sum) - kMean) / kDeviation;
}

double ValueAt(const InitialTensor& tensor, uint64_t stream, uint64_t index) {
  switch (tensor.values) {
    case InitialValues::kOnes:
      return 1.0;
    case InitialValues::kALog:
      return std::log(1.0 + 15.0 * UniformAt(stream, index));
    case InitialValues::kDtBias: {
      const double low = std::log(1e-3);
      const double step = std::exp(low + (std::log(0.1) - low) * UniformAt(stream, index));
      return step + std::log(1.0 - std::exp(-step));
    }
    case InitialValues::kNormal:
      break;
  }
  return tensor.scale * NormalAt(stream, index);
}

class Planner {
 public:
  explicit Planner(const ModelConfig& config)
      : config_(config),
        hidden_(config.hidden_size),
        from_hidden_(1.0 / Root(config.hidden_size)),
        // Two residual branches a layer add up to the embedding's variance over the whole depth.
        branch_(1.0 / Root(2 * static_cast<int64_t>(config.layers.size()))) {}

  static double Root(int64_t value) { return std::sqrt(static_cast<double>(value)); }

  void Matrix(const std::string& name, int64_t rows, int64_t columns, double scale) {
    tensors.push_back({{name, "BF16", {rows, columns}}, InitialValues::kNormal, scale});
  }
  void Vector(const std::string& name, std::vector<int64_t> shape, InitialValues values) {
    tensors.push_back({{name, "F32", std::move(shape)}, values, 1.0});
  }
  void Layer(size_t layer);

  std::vector<InitialTensor> tensors;

 private:
  void Kda(const std::string& prefix);
  void LatentAttention(const std::string& prefix);
  // Names of gate, up and down; `gain` of the output over the branch's.
  void Mlp(const std::string& prefix, const char* const (&names)[3], int64_t width, double gain);
  void Experts(const std::string& prefix);

  const ModelConfig& config_;
  const int64_t hidden_;
  const double from_hidden_;
  const double branch_;
};

constexpr const char* kDenseNames[3] = {"gate_proj.weight", "up_proj.weight", "down_proj.weight"};
constexpr const char* kExpertNames[3] = {"w1.weight", "w3.weight", "w2.weight"};

void Planner::Kda(const std::string& prefix) {
  const TensorNames& names = NamesOf(config_.family);
  const int64_t value_heads = config_.kda_value_heads;
  const int64_t rank = config_.kda_value_head_dim;
  const int64_t keys = config_.kda_heads * config_.kda_head_dim;
  const int64_t values = value_heads * config_.kda_value_head_dim;
  const int64_t decays = value_heads * config_.kda_head_dim;
  const std::pair<const char*, int64_t> branches[] = {{"q", keys}, {"k", keys}, {"v", values}};
  for (const auto& [which, channels] : branches) {
    Matrix(absl::StrCat(prefix, which, "_proj.weight"), channels, hidden_, from_hidden_);
  }
  for (const auto& [which, channels] : branches) {
    tensors.push_back({{absl::StrCat(prefix, which, "_conv1d.weight"),
                        "BF16",
                        {channels, 1, config_.conv_kernel_size}},
                       InitialValues::kNormal,
                       0.5});
  }
  Vector(prefix + "A_log", {1, 1, value_heads, 1}, InitialValues::kALog);
  Vector(prefix + "dt_bias", {decays}, InitialValues::kDtBias);
  Matrix(prefix + names.decay_down, rank, hidden_, from_hidden_);
  Matrix(prefix + names.decay_up, decays, rank, 1.0 / Root(rank));
  Matrix(prefix + "b_proj.weight", value_heads, hidden_, from_hidden_);
  Matrix(prefix + names.gate_down, rank, hidden_, from_hidden_);
  Matrix(prefix + names.gate_up, values, rank, 1.0 / Root(rank));
  if (names.gate_bias != nullptr) {
    tensors.push_back({{prefix + names.gate_bias, "F32", {values}}, InitialValues::kNormal, 0.1});
  }
  Vector(prefix + "o_norm.weight", {rank}, InitialValues::kOnes);
  Matrix(prefix + "o_proj.weight", hidden_, values, branch_ / Root(values));
}

void Planner::LatentAttention(const std::string& prefix) {
  const LatentAttentionConfig& latent = config_.latent;
  const int64_t rows_out = latent.heads * latent.value_dim;
  // Scores deviate by 3: attention picks some tokens, as trained models' does, where unit deviation
  // would average over all of them.
  Matrix(prefix + "q_proj.weight", latent.heads * (latent.nope_dim + latent.rope_dim), hidden_,
         3.0 * from_hidden_);
  Matrix(prefix + "kv_a_proj_with_mqa.weight", latent.rank + latent.rope_dim, hidden_,
         from_hidden_);
  Vector(prefix + "kv_a_layernorm.weight", {latent.rank}, InitialValues::kOnes);
  Matrix(prefix + "kv_b_proj.weight", latent.heads * (latent.nope_dim + latent.value_dim),
         latent.rank, 1.0 / Root(latent.rank));
  Matrix(prefix + "o_proj.weight", hidden_, rows_out, branch_ / Root(rows_out));
}

void Planner::Mlp(const std::string& prefix, const char* const (&names)[3], int64_t width,
                  double gain) {
  Matrix(prefix + names[0], width, hidden_, from_hidden_);
  Matrix(prefix + names[1], width, hidden_, from_hidden_);
  Matrix(prefix + names[2], hidden_, width, 2.0 * gain * branch_ / Root(width));
}

// The routed experts' sum and the shared ones' together have the branch's variance.
void Planner::Experts(const std::string& prefix) {
  const ExpertsConfig& experts = config_.experts;
  const double routed =
      experts.routed_scale * experts.routed_scale / static_cast<double>(experts.per_token);
  const double gain = 1.0 / std::sqrt(routed + (experts.shared > 0 ? 1.0 : 0.0));
  Matrix(prefix + "gate.weight", experts.count, hidden_, from_hidden_);
  tensors.push_back({{prefix + "gate.e_score_correction_bias", "F32", {experts.count}},
                     InitialValues::kNormal,
                     0.05});
  for (int64_t expert = 0; expert < experts.count; ++expert) {
    Mlp(absl::StrCat(prefix, "experts.", expert, "."), kExpertNames, experts.width, gain);
  }
  if (experts.shared == 0) return;
  Mlp(prefix + "shared_experts.", kDenseNames, experts.shared * experts.width, gain);
}

void Planner::Layer(size_t layer) {
  const TensorNames& names = NamesOf(config_.family);
  const LayerConfig& kinds = config_.layers[layer];
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  Vector(prefix + names.mixer_norm, {hidden_}, InitialValues::kOnes);
  if (kinds.mixer == MixerKind::kLatentAttention) {
    LatentAttention(prefix + names.mixer);
  } else {
    Kda(prefix + names.mixer);
  }
  Vector(prefix + names.mlp_norm, {hidden_}, InitialValues::kOnes);
  if (kinds.mlp == MlpKind::kMixtureOfExperts) {
    Experts(prefix + kExpertsPrefix);
  } else {
    Mlp(prefix + names.dense_mlp, kDenseNames, config_.intermediate_size, 1.0);
  }
}

}  // namespace

std::vector<InitialTensor> PlanInitialTensors(const ModelConfig& config) {
  Planner planner(config);
  planner.Matrix(NamesOf(config.family).embedding, config.vocab_size, config.hidden_size, 1.0);
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    planner.Layer(layer);
  }
  planner.Vector(kFinalNormName, {config.hidden_size}, InitialValues::kOnes);
  if (!config.tie_word_embeddings) {
    planner.Matrix(kOutputHeadName, config.vocab_size, config.hidden_size,
                   1.0 / std::sqrt(static_cast<double>(config.hidden_size)));
  }
  return std::move(planner.tensors);
}

uint64_t InitialStream(uint64_t seed, std::string_view name) {
  uint64_t stream = Mix(seed + 0x9e3779b97f4a7c15u);
  for (char c : name) stream = Mix(stream ^ static_cast<uint8_t>(c)) + 0x9e3779b97f4a7c15u;
  return stream;
}

uint64_t TensorBytes(const TensorPlan& plan) {
  return ElementCount(plan.shape).value_or(0) * TensorElementBytes(plan.dtype);
}

uint64_t InitialTensorBytes(const ModelConfig& config) {
  uint64_t bytes = 0;
  for (const InitialTensor& tensor : PlanInitialTensors(config)) bytes += TensorBytes(tensor.plan);
  return bytes;
}

std::vector<std::byte> InitialBytes(const InitialTensor& tensor, uint64_t seed, uint64_t first,
                                    uint64_t count) {
  const uint64_t stream = InitialStream(seed, tensor.plan.name);
  const size_t element_bytes = TensorElementBytes(tensor.plan.dtype);
  std::vector<std::byte> bytes(count * element_bytes);
  for (uint64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(ValueAt(tensor, stream, first + i));
    const uint16_t rounded = Bf16FromFloat(value);
    const void* const from = element_bytes == 4 ? static_cast<const void*>(&value) : &rounded;
    std::memcpy(bytes.data() + i * element_bytes, from, element_bytes);
  }
  return bytes;
}

}  // namespace deltafill::worker
