// Every limit of the delta rule's params that can be checked without a device.
#include <cmath>
#include <string>

#include "kernels/cuda/plan.h"

namespace deltafill::kernels::cuda {
namespace {

bool IsHeadDim(int dim) { return dim == 32 || dim == 64 || dim == 128; }

Status CheckRows(const char* field, const ConstRows& rows, int64_t width) {
  const std::string name(field);
  if (rows.data == nullptr) return InvalidArgument(name + ".data is null");
  if (rows.dtype != DType::kBF16) {
    return {StatusCode::kUnsupported, name + ".dtype: the CUDA backend takes bf16 rows"};
  }
  if (rows.row_stride < width) {
    return InvalidArgument(name + ".row_stride is " + std::to_string(rows.row_stride) +
                           ", less than the row's width " + std::to_string(width));
  }
  if (reinterpret_cast<uintptr_t>(rows.data) % 2 != 0) {
    return InvalidArgument(name + ".data is not aligned to 2 bytes");
  }
  return {};
}

Status CheckInputs(const DeltaRuleShape& shape, const DeltaRuleInputs& in) {
  const int64_t key_width = static_cast<int64_t>(shape.heads) * shape.key_dim;
  const bool scalar =
      shape.gate == GateKind::kScalarSoftplus || shape.gate == GateKind::kScalarPreactivated;
  const int64_t gate_width = static_cast<int64_t>(shape.value_heads) * (scalar ? 1 : shape.key_dim);
  if (Status s = CheckRows("in.q", in.q, key_width); !s.ok()) return s;
  if (Status s = CheckRows("in.k", in.k, key_width); !s.ok()) return s;
  if (Status s = CheckRows("in.v", in.v, int64_t{shape.value_heads} * shape.value_dim); !s.ok()) {
    return s;
  }
  if (shape.gate != GateKind::kNone) {
    if (Status s = CheckRows("in.f", in.f, gate_width); !s.ok()) return s;
  }
  if (shape.write == WriteRule::kDelta) {
    if (Status s = CheckRows("in.beta", in.beta, shape.value_heads); !s.ok()) return s;
  }
  if (UsesALog(shape.gate) && in.a_log == nullptr) return InvalidArgument("in.a_log is null");
  return {};
}

Status CheckCheckpoints(const DeltaRuleForwardParams& params) {
  const int64_t sequences = static_cast<int64_t>(params.offsets.size()) - 1;
  for (size_t i = 0; i < params.checkpoints.size(); ++i) {
    const StateCheckpoint& c = params.checkpoints[i];
    const std::string name = "checkpoints[" + std::to_string(i) + "]";
    if (c.sequence < 0 || c.sequence >= sequences) {
      return InvalidArgument(name + ".sequence is " + std::to_string(c.sequence) + ", not in [0, " +
                             std::to_string(sequences) + ")");
    }
    const int64_t length = params.offsets[c.sequence + 1] - params.offsets[c.sequence];
    if (c.tokens < kBlockTokens || c.tokens > length || c.tokens % kBlockTokens != 0) {
      return InvalidArgument(name + ".tokens is " + std::to_string(c.tokens) +
                             ", not a multiple of 64 in [64, " + std::to_string(length) + "]");
    }
    if (c.state == nullptr) return InvalidArgument(name + ".state is null");
    if (i == 0) continue;
    const StateCheckpoint& before = params.checkpoints[i - 1];
    if (c.sequence < before.sequence ||
        (c.sequence == before.sequence && c.tokens < before.tokens)) {
      return InvalidArgument(name + " is not ascending by (sequence, tokens)");
    }
  }
  return {};
}

}  // namespace

Status CheckShape(const DeltaRuleShape& shape) {
  if (shape.heads < 1) return InvalidArgument("shape.heads must be at least 1");
  if (shape.value_heads < 1 || shape.value_heads % shape.heads != 0) {
    return InvalidArgument("shape.value_heads is " + std::to_string(shape.value_heads) +
                           ", not a positive multiple of shape.heads " +
                           std::to_string(shape.heads));
  }
  if (!IsHeadDim(shape.key_dim)) return InvalidArgument("shape.key_dim must be 32, 64 or 128");
  if (!IsHeadDim(shape.value_dim)) return InvalidArgument("shape.value_dim must be 32, 64 or 128");
  if (shape.gate == GateKind::kChannelLowerBound &&
      !(shape.lower_bound >= -5.0f && shape.lower_bound < 0.0f)) {
    return InvalidArgument("shape.lower_bound must be in [-5, 0)");
  }
  if (!std::isfinite(shape.query_scale)) return InvalidArgument("shape.query_scale is not finite");
  return {};
}

Status CheckOffsets(SequenceOffsets offsets) {
  if (offsets.empty()) return InvalidArgument("offsets is empty; it needs sequences + 1 entries");
  if (offsets[0] != 0) return InvalidArgument("offsets[0] must be 0");
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) {
      return InvalidArgument("offsets[" + std::to_string(i) + "] decreases");
    }
    if (offsets[i] - offsets[i - 1] > kMaxSequenceTokens) {
      return InvalidArgument("offsets[" + std::to_string(i) + "]: a sequence is longer than " +
                             std::to_string(kMaxSequenceTokens) + " tokens");
    }
  }
  return {};
}

Status CheckForwardParams(const DeltaRuleForwardParams& params) {
  if (Status s = CheckShape(params.shape); !s.ok()) return s;
  if (Status s = CheckOffsets(params.offsets); !s.ok()) return s;
  if (params.offsets.back() > 0) {
    if (Status s = CheckInputs(params.shape, params.in); !s.ok()) return s;
    const int64_t width = int64_t{params.shape.value_heads} * params.shape.value_dim;
    if (Status s = CheckRows("o", params.o, width); !s.ok()) return s;
  }
  return CheckCheckpoints(params);
}

}  // namespace deltafill::kernels::cuda
