#include "worker/model/init_tensors.h"

#include <cmath>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "worker/model/float_formats.h"
#include "worker/model/safetensors.h"

namespace deltafill::worker {
namespace {

// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t StreamOf(uint64_t seed, std::string_view name) {
  uint64_t stream = Mix(seed + 0x9e3779b97f4a7c15u);
  for (char c : name) stream = Mix(stream ^ static_cast<uint8_t>(c)) + 0x9e3779b97f4a7c15u;
  return stream;
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
  explicit Planner(const ModelConfig& config) : config_(config) {}

  void Matrix(const std::string& name, int64_t rows, int64_t columns, double scale) {
    tensors.push_back({{name, "BF16", {rows, columns}}, InitialValues::kNormal, scale});
  }
  void Vector(const std::string& name, std::vector<int64_t> shape, InitialValues values) {
    tensors.push_back({{name, "F32", std::move(shape)}, values, 1.0});
  }
  void Layer(const std::string& prefix);

  std::vector<InitialTensor> tensors;

 private:
  const ModelConfig& config_;
};

void Planner::Layer(const std::string& prefix) {
  const int64_t hidden = config_.hidden_size;
  const int64_t dim = config_.kda_head_dim;
  const int64_t heads = config_.kda_heads;
  const int64_t channels = heads * dim;
  const int64_t intermediate = config_.intermediate_size;
  const double from_hidden = 1.0 / std::sqrt(static_cast<double>(hidden));
  const double from_dim = 1.0 / std::sqrt(static_cast<double>(dim));
  // Two residual branches a layer add up to the embedding's variance over the whole depth.
  const double branch = 1.0 / std::sqrt(2.0 * static_cast<double>(config_.layers.size()));
  const std::string mixer = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";

  Vector(prefix + "input_layernorm.weight", {hidden}, InitialValues::kOnes);
  for (const char* which : {"q", "k", "v"}) {
    Matrix(absl::StrCat(mixer, which, "_proj.weight"), channels, hidden, from_hidden);
  }
  for (const char* which : {"q", "k", "v"}) {
    tensors.push_back({{absl::StrCat(mixer, which, "_conv1d.weight"),
                        "BF16",
                        {channels, 1, config_.conv_kernel_size}},
                       InitialValues::kNormal,
                       0.5});
  }
  Vector(mixer + "A_log", {1, 1, heads, 1}, InitialValues::kALog);
  Vector(mixer + "dt_bias", {channels}, InitialValues::kDtBias);
  Matrix(mixer + "f_a_proj.weight", dim, hidden, from_hidden);
  Matrix(mixer + "f_b_proj.weight", channels, dim, from_dim);
  Matrix(mixer + "b_proj.weight", heads, hidden, from_hidden);
  Matrix(mixer + "g_a_proj.weight", dim, hidden, from_hidden);
  Matrix(mixer + "g_b_proj.weight", channels, dim, from_dim);
  Vector(mixer + "o_norm.weight", {dim}, InitialValues::kOnes);
  Matrix(mixer + "o_proj.weight", hidden, channels,
         branch / std::sqrt(static_cast<double>(channels)));

  Vector(prefix + "post_attention_layernorm.weight", {hidden}, InitialValues::kOnes);
  Matrix(mlp + "gate_proj.weight", intermediate, hidden, from_hidden);
  Matrix(mlp + "up_proj.weight", intermediate, hidden, from_hidden);
  Matrix(mlp + "down_proj.weight", hidden, intermediate,
         2.0 * branch / std::sqrt(static_cast<double>(intermediate)));
}

}  // namespace

std::vector<InitialTensor> PlanInitialTensors(const ModelConfig& config) {
  Planner planner(config);
  planner.Matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size, 1.0);
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    planner.Layer(absl::StrCat("model.layers.", layer, "."));
  }
  planner.Vector("model.norm.weight", {config.hidden_size}, InitialValues::kOnes);
  if (!config.tie_word_embeddings) {
    planner.Matrix("lm_head.weight", config.vocab_size, config.hidden_size,
                   1.0 / std::sqrt(static_cast<double>(config.hidden_size)));
  }
  return std::move(planner.tensors);
}

uint64_t TensorBytes(const TensorPlan& plan) {
  return ElementCount(plan.shape).value_or(0) * TensorElementBytes(plan.dtype);
}

std::vector<std::byte> InitialBytes(const InitialTensor& tensor, uint64_t seed, uint64_t first,
                                    uint64_t count) {
  const uint64_t stream = StreamOf(seed, tensor.plan.name);
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
