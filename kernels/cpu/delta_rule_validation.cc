#include "kernels/cpu/delta_rule_validation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace deltafill::kernels::cpu {
namespace {

Status Invalid(const std::string& field, int64_t index, const std::string& limit) {
  return InvalidArgument(field + "[" + std::to_string(index) + "]" + limit);
}

bool IsHeadDim(int dim) { return dim == 32 || dim == 64 || dim == 128; }

bool HasChannelGate(GateKind gate) {
  return gate == GateKind::kChannelSoftplus || gate == GateKind::kChannelLowerBound ||
         gate == GateKind::kChannelPreactivated;
}

bool IsPreactivated(GateKind gate) {
  return gate == GateKind::kScalarPreactivated || gate == GateKind::kChannelPreactivated;
}

Status ValidateShape(const DeltaRuleShape& shape) {
  if (shape.heads < 1) {
    return InvalidArgument("shape.heads is " + std::to_string(shape.heads) + ", must be >= 1");
  }
  if (shape.value_heads < 1 || shape.value_heads % shape.heads != 0) {
    return InvalidArgument("shape.value_heads is " + std::to_string(shape.value_heads) +
                           ", must be a positive multiple of shape.heads, " +
                           std::to_string(shape.heads));
  }
  if (!IsHeadDim(shape.key_dim)) {
    return InvalidArgument("shape.key_dim is " + std::to_string(shape.key_dim) +
                           ", must be 32, 64 or 128");
  }
  if (!IsHeadDim(shape.value_dim)) {
    return InvalidArgument("shape.value_dim is " + std::to_string(shape.value_dim) +
                           ", must be 32, 64 or 128");
  }
  if (shape.gate > GateKind::kChannelPreactivated) {
    return InvalidArgument("shape.gate is " + std::to_string(static_cast<int>(shape.gate)) +
                           ", not a GateKind");
  }
  if (shape.write > WriteRule::kLinear) {
    return InvalidArgument("shape.write is " + std::to_string(static_cast<int>(shape.write)) +
                           ", not a WriteRule");
  }
  if (shape.gate == GateKind::kChannelLowerBound &&
      !(shape.lower_bound >= -5.0f && shape.lower_bound < 0.0f)) {
    return InvalidArgument("shape.lower_bound is " + std::to_string(shape.lower_bound) +
                           ", must be in [-5, 0)");
  }
  if (!std::isfinite(shape.query_scale) || shape.query_scale < 0.0f) {
    return InvalidArgument("shape.query_scale is " + std::to_string(shape.query_scale) +
                           ", must be finite and >= 0");
  }
  return {};
}

Status ValidateRows(const char* field, const ConstRows& rows, int64_t count, int64_t width) {
  if (rows.dtype != DType::kF32) {
    return {StatusCode::kUnsupported,
            std::string(field) + ".dtype must be kF32: the CPU's delta rule takes fp32 rows only"};
  }
  if (count == 0) return {};
  if (rows.data == nullptr) {
    return InvalidArgument(std::string(field) + ".data is null, with " + std::to_string(count) +
                           " rows to read or write");
  }
  if (rows.row_stride < width) {
    return InvalidArgument(std::string(field) + ".row_stride is " +
                           std::to_string(rows.row_stride) + ", must be >= the row's width " +
                           std::to_string(width));
  }
  return {};
}

Status ValidateInputs(const DeltaRuleShape& shape, const DeltaRuleInputs& in, int64_t rows,
                      bool reads_q) {
  if (Status status = ValidateShape(shape); !status.ok()) return status;
  const int64_t key_width = static_cast<int64_t>(shape.heads) * shape.key_dim;
  const int64_t value_width = static_cast<int64_t>(shape.value_heads) * shape.value_dim;
  const int64_t gate_width =
      static_cast<int64_t>(shape.value_heads) * (HasChannelGate(shape.gate) ? shape.key_dim : 1);
  if (reads_q) {
    if (Status status = ValidateRows("in.q", in.q, rows, key_width); !status.ok()) return status;
  }
  if (Status status = ValidateRows("in.k", in.k, rows, key_width); !status.ok()) return status;
  if (Status status = ValidateRows("in.v", in.v, rows, value_width); !status.ok()) return status;
  if (shape.gate != GateKind::kNone) {
    if (Status status = ValidateRows("in.f", in.f, rows, gate_width); !status.ok()) return status;
    if (!IsPreactivated(shape.gate) && in.a_log == nullptr) {
      return InvalidArgument("in.a_log is null, must be given for softplus and lower-bound gates");
    }
  }
  if (shape.write == WriteRule::kDelta) {
    Status status = ValidateRows("in.beta", in.beta, rows, shape.value_heads);
    if (!status.ok()) return status;
  }
  return {};
}

Status ValidateOffsets(SequenceOffsets offsets) {
  if (offsets.empty()) return InvalidArgument("offsets is empty, must have sequences + 1 elements");
  if (offsets[0] != 0) {
    return Invalid("offsets", 0, " is " + std::to_string(offsets[0]) + ", must be 0");
  }
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) {
      return Invalid("offsets", static_cast<int64_t>(i),
                     " is " + std::to_string(offsets[i]) + ", must be >= offsets[" +
                         std::to_string(i - 1) + "], " + std::to_string(offsets[i - 1]));
    }
  }
  return {};
}

Status ValidateCheckpoints(SequenceOffsets offsets, std::span<const StateCheckpoint> checkpoints) {
  const int64_t sequences = static_cast<int64_t>(offsets.size()) - 1;
  for (size_t i = 0; i < checkpoints.size(); ++i) {
    const StateCheckpoint& checkpoint = checkpoints[i];
    const int64_t index = static_cast<int64_t>(i);
    if (checkpoint.sequence < 0 || checkpoint.sequence >= sequences) {
      return Invalid("checkpoints", index,
                     ".sequence is " + std::to_string(checkpoint.sequence) + ", must be in [0, " +
                         std::to_string(sequences) + ")");
    }
    const int64_t length = offsets[checkpoint.sequence + 1] - offsets[checkpoint.sequence];
    if (checkpoint.tokens < kBlockTokens || checkpoint.tokens > length ||
        checkpoint.tokens % kBlockTokens != 0) {
      return Invalid("checkpoints", index,
                     ".tokens is " + std::to_string(checkpoint.tokens) +
                         ", must be a multiple of 64 in [64, " + std::to_string(length) + "]");
    }
    if (checkpoint.state == nullptr) return Invalid("checkpoints", index, ".state is null");
    if (i == 0) continue;
    const StateCheckpoint& before = checkpoints[i - 1];
    if (checkpoint.sequence < before.sequence ||
        (checkpoint.sequence == before.sequence && checkpoint.tokens < before.tokens)) {
      return Invalid("checkpoints", index, " must ascend by (sequence, tokens)");
    }
  }
  return {};
}

}  // namespace

Status ValidateForward(const DeltaRuleForwardParams& params) {
  if (Status status = ValidateOffsets(params.offsets); !status.ok()) return status;
  const int64_t rows = params.offsets.back();
  Status status = ValidateInputs(params.shape, params.in, rows, /*reads_q=*/true);
  if (!status.ok()) return status;
  const int64_t value_width =
      static_cast<int64_t>(params.shape.value_heads) * params.shape.value_dim;
  status = ValidateRows("o", params.o, rows, value_width);
  if (!status.ok()) return status;
  return ValidateCheckpoints(params.offsets, params.checkpoints);
}

Status ValidateSummary(const DeltaRuleSummaryParams& params) {
  if (params.rows < 0) {
    return InvalidArgument("rows is " + std::to_string(params.rows) + ", must be >= 0");
  }
  if (params.m == nullptr) return InvalidArgument("m is null");
  if (params.b == nullptr) return InvalidArgument("b is null");
  return ValidateInputs(params.shape, params.in, params.rows, /*reads_q=*/false);
}

Status ValidateStep(const DeltaRuleStepParams& params) {
  if (params.batch < 0) {
    return InvalidArgument("batch is " + std::to_string(params.batch) + ", must be >= 0");
  }
  Status status = ValidateInputs(params.shape, params.in, params.batch, /*reads_q=*/true);
  if (!status.ok()) return status;
  status = ValidateRows("o", params.o, params.batch,
                        static_cast<int64_t>(params.shape.value_heads) * params.shape.value_dim);
  if (!status.ok() || params.batch == 0) return status;
  if (params.states == nullptr) return InvalidArgument("states is null");
  std::vector<const float*> states(params.states, params.states + params.batch);
  for (int64_t i = 0; i < params.batch; ++i) {
    if (states[i] == nullptr) return Invalid("states", i, " is null");
  }
  std::sort(states.begin(), states.end());
  if (std::adjacent_find(states.begin(), states.end()) != states.end()) {
    return InvalidArgument("states must be distinct, one is given twice");
  }
  return {};
}

}  // namespace deltafill::kernels::cpu
