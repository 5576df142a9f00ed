// config.json of flash-linear-attention's `kda` models (fla/models/kda/configuration_kda.py).
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "worker/model/config_family.h"
#include "worker/model/config_limits.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

absl::Status ReadValueHeads(const ConfigSection& root, ModelConfig* config) {
  DELTAFILL_TRY(root.ReadOptionalInteger("num_v_heads", 1, kHeadsMax, &config->kda_value_heads));
  if (config->kda_value_heads % config->kda_heads != 0) {
    return ConfigFault("num_v_heads", absl::StrCat("is ", config->kda_value_heads,
                                                   "; it must be a multiple of num_heads (",
                                                   config->kda_heads, ")"));
  }
  double expand = 1.0;
  DELTAFILL_TRY(root.ReadOptionalNumber("expand_v", 0.0, 4.0, false, &expand));
  const double value_dim = static_cast<double>(config->kda_head_dim) * expand;
  if (value_dim != 32.0 && value_dim != 64.0 && value_dim != 128.0) {
    return ConfigFault("expand_v",
                       absl::StrCat("times head_dim is ", value_dim, "; it must be 32, 64 or 128"));
  }
  config->kda_value_head_dim = static_cast<int64_t>(value_dim);
  return absl::OkStatus();
}

// A lower bound makes the bounded gate; safe_gate says that there is one.
absl::Status ReadGate(const ConfigSection& root, ModelConfig* config) {
  bool safe_gate = false;
  DELTAFILL_TRY(root.ReadOptionalBool("safe_gate", &safe_gate));
  if (root.Find("lower_bound") == nullptr) {
    if (safe_gate) return ConfigFault("lower_bound", "is missing, and safe_gate is true");
    return absl::OkStatus();
  }
  config->gate = KdaGate::kLowerBound;
  return root.ReadNumber("lower_bound", -5.0, 0.0, true, &config->gate_lower_bound);
}

// The width that fla derives where intermediate_size is null: the multiple of 256 that is not below
// 2/3 hidden_ratio hidden_size.
absl::Status ReadIntermediate(const ConfigSection& root, ModelConfig* config) {
  if (root.Find("intermediate_size") != nullptr) {
    return root.ReadInteger("intermediate_size", 1, kIntermediateMax, &config->intermediate_size);
  }
  int64_t ratio = 4;
  DELTAFILL_TRY(root.ReadOptionalInteger("hidden_ratio", 1, 8, &ratio));
  const int64_t width = config->hidden_size * ratio * 2 / 3;
  config->intermediate_size = (width + 255) / 256 * 256;
  return absl::OkStatus();
}

}  // namespace

// max_position_embeddings is not read: KDA has no positions, and fla does not stop there.
absl::Status ReadFlaKda(const ConfigSection& root, ModelConfig* config) {
  config->rms_norm_eps = 1e-6;
  DELTAFILL_TRY(root.ReadOptionalNumber("norm_eps", 0.0, 0.1, false, &config->rms_norm_eps));
  DELTAFILL_TRY(ReadIntermediate(root, config));
  DELTAFILL_TRY(ReadKdaHeads(
      root, {.heads = "num_heads", .head_dim = "head_dim", .conv_size = "conv_size"}, config));
  DELTAFILL_TRY(ReadValueHeads(root, config));
  DELTAFILL_TRY(ReadGate(root, config));
  DELTAFILL_TRY(root.RequireBool("use_short_conv", true));
  DELTAFILL_TRY(root.RequireBool("allow_neg_eigval", false));
  DELTAFILL_TRY(root.RequireAbsent("attn"));
  DELTAFILL_TRY(root.RequireAbsent("attnres_block_size"));
  DELTAFILL_TRY(root.RequireAbsent("deltafill"));
  return root.RequireText("hidden_act", "swish");
}

}  // namespace deltafill::worker
