// The chunkwise delta rule and its family: parameters of the forward pass, the segment summary and
// the one-token recurrent step. DESIGN section 3 has the equations; they follow Kimi Delta
// Attention (Kimi Linear, arXiv:2510.26692), Gated DeltaNet (arXiv:2412.06464) and DeltaNet
// (arXiv:2406.06484). Per token and head, with state S [K, V]:
//
//   S <- Diag(exp g) S;  e = beta (v - S^T k);  S <- S + k e^T;  o = S^T (q K^-1/2)
//
// The state is kept as fp32 [V, K] (K contiguous).
#ifndef DELTAFILL_KERNELS_DELTA_RULE_H_
#define DELTAFILL_KERNELS_DELTA_RULE_H_

#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace deltafill::kernels {

// How the raw gate input f becomes the log decay g <= 0.
enum class GateKind : uint8_t {
  kNone,                // g = 0: linear attention, DeltaNet
  kScalarSoftplus,      // g = -exp(a_log[h]) softplus(f[h] + dt_bias[h]): Gated DeltaNet
  kChannelSoftplus,     // g = -exp(a_log[h]) softplus(f[h,k] + dt_bias[h,k]): KDA, Kimi-Linear
  kChannelLowerBound,   // g = lower_bound sigmoid(exp(a_log[h]) (f[h,k] + dt_bias[h,k])): KDA, Kimi
                        // K3
  kScalarPreactivated,  // g = f[h], already a log decay <= 0
  kChannelPreactivated,  // g = f[h,k], already a log decay <= 0
};

// Whether the gate reads a_log.
constexpr bool UsesALog(GateKind gate) {
  return gate == GateKind::kScalarSoftplus || gate == GateKind::kChannelSoftplus ||
         gate == GateKind::kChannelLowerBound;
}

enum class WriteRule : uint8_t {
  kDelta,   // e = beta (v - S^T k)
  kLinear,  // e = v: linear attention; beta is not read
};

// Shape and switches common to the three operators.
struct DeltaRuleShape {
  int heads = 0;        // H: query and key heads
  int value_heads = 0;  // HV, a multiple of H; value head j reads q and k of head j / (HV / H)
  int key_dim = 0;      // K: 32, 64 or 128
  int value_dim = 0;    // V: 32, 64 or 128
  GateKind gate = GateKind::kChannelSoftplus;
  WriteRule write = WriteRule::kDelta;
  float lower_bound = -5.0f;  // kChannelLowerBound only, in [-5, 0)
  bool normalize_qk = true;   // x / sqrt(sum x^2 + 1e-6) over a head's K channels
  bool beta_is_logit = true;  // beta = sigmoid(beta); otherwise taken as it is, in [0, 2]
  float query_scale = 0.0f;   // 0 means K^-1/2
};

// Rows of all packed sequences, one a token.
struct DeltaRuleInputs {
  ConstRows q;     // [rows, H*K]
  ConstRows k;     // [rows, H*K]
  ConstRows v;     // [rows, HV*V]
  ConstRows f;     // [rows, HV*K] channel gates, [rows, HV] scalar gates, unused for kNone
  ConstRows beta;  // [rows, HV], unused for kLinear
  const float* a_log = nullptr;    // [HV], softplus and lower-bound gates
  const float* dt_bias = nullptr;  // [HV*K] channel gates, [HV] scalar gates; nullptr means 0
};

// A state wanted at a block end inside a sequence, in the same pass.
struct StateCheckpoint {
  int sequence = 0;
  int64_t tokens = 0;      // of the sequence; a multiple of kBlockTokens in [64, length]
  float* state = nullptr;  // [HV, V, K]
};

struct DeltaRuleForwardParams {
  DeltaRuleShape shape;
  DeltaRuleInputs in;
  SequenceOffsets offsets;  // [sequences + 1], host
  const float* const* initial_states =
      nullptr;    // host [sequences] of [HV, V, K]; entry or array may be nullptr: zero
  MutableRows o;  // [rows, HV*V]
  float* const* final_states =
      nullptr;  // host [sequences] of [HV, V, K]; entry or array may be nullptr
  std::span<const StateCheckpoint> checkpoints;  // host; ascending by (sequence, tokens)
};

// The affine map of one sequence's rows: S_out = M S_in + B per value head.
struct DeltaRuleSummaryParams {
  DeltaRuleShape shape;
  DeltaRuleInputs in;  // o is not computed, so q is not read
  int64_t rows = 0;
  float* m = nullptr;  // [HV, K, K] row-major: out channel, in channel
  float* b = nullptr;  // [HV, V, K], laid out like a state
};

// One token for each of `batch` independent sequences; states are updated in place.
struct DeltaRuleStepParams {
  DeltaRuleShape shape;
  DeltaRuleInputs in;  // row i belongs to sequence i
  int64_t batch = 0;
  float* const* states = nullptr;  // host [batch] of [HV, V, K]; distinct
  MutableRows o;                   // [batch, HV*V]
};

}  // namespace deltafill::kernels

#endif  // DELTAFILL_KERNELS_DELTA_RULE_H_
