// Where a family's checkpoints keep what both families have.
#ifndef DELTAFILL_WORKER_MODEL_TENSOR_NAMES_H_
#define DELTAFILL_WORKER_MODEL_TENSOR_NAMES_H_

#include "worker/model/config.h"

namespace deltafill::worker {

struct TensorNames {
  const char* embedding;
  const char* mixer_norm;  // in "model.layers.N."
  const char* mlp_norm;
  const char* mixer;  // prefixes in "model.layers.N."
  const char* dense_mlp;
  const char* decay_down;  // in the mixer: hidden to rank, and rank to the decay's channels
  const char* decay_up;
  const char* gate_down;  // the output gate's, likewise
  const char* gate_up;
  const char* gate_bias;  // nullptr: it has none
};

// Shared by all: the final norm, the output head, experts.
inline constexpr char kFinalNormName[] = "model.norm.weight";
inline constexpr char kOutputHeadName[] = "lm_head.weight";
inline constexpr char kExpertsPrefix[] = "block_sparse_moe.";

inline const TensorNames& NamesOf(ModelFamily family) {
  static constexpr TensorNames kKimiLinear = {
      .embedding = "model.embed_tokens.weight",
      .mixer_norm = "input_layernorm.weight",
      .mlp_norm = "post_attention_layernorm.weight",
      .mixer = "self_attn.",
      .dense_mlp = "mlp.",
      .decay_down = "f_a_proj.weight",
      .decay_up = "f_b_proj.weight",
      .gate_down = "g_a_proj.weight",
      .gate_up = "g_b_proj.weight",
      .gate_bias = nullptr,
  };
  static constexpr TensorNames kFlaKda = {
      .embedding = "model.embeddings.weight",
      .mixer_norm = "attn_norm.weight",
      .mlp_norm = "mlp_norm.weight",
      .mixer = "attn.",
      .dense_mlp = "mlp.",
      .decay_down = "f_proj.0.weight",
      .decay_up = "f_proj.1.weight",
      .gate_down = "g_proj.0.weight",
      .gate_up = "g_proj.1.weight",
      .gate_bias = "g_proj.1.bias",
  };
  return family == ModelFamily::kFlaKda ? kFlaKda : kKimiLinear;
}

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_TENSOR_NAMES_H_
