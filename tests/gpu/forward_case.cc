#include "tests/gpu/forward_case.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/gpu/device_memory.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DeltaRuleShape;
using kernels::DType;
using kernels::GateKind;
using kernels::Status;

// One operand's place in the rows of device memory.
struct Column {
  const std::vector<float>* values;
  int64_t width;
  int64_t offset = 0;  // in its row
  int64_t stride = 0;
  size_t buffer = 0;
};

std::vector<Column> Columns(const ForwardCase& c) {
  const DeltaRuleShape& s = c.shape;
  return {{&c.rows.q, int64_t{s.heads} * s.key_dim},
          {&c.rows.k, int64_t{s.heads} * s.key_dim},
          {&c.rows.v, int64_t{s.value_heads} * s.value_dim},
          {&c.rows.f, int64_t{s.value_heads} * GateWidth(s)},
          {&c.rows.beta, c.rows.beta.empty() ? 0 : s.value_heads}};
}

// Poisoned device rows for all operands; fills in the columns' places.
std::vector<DeviceMemory> UploadRows(const ForwardCase& c, std::vector<Column>* columns) {
  const int64_t rows = c.rows.rows;
  std::vector<std::vector<uint16_t>> host;
  if (c.layout == RowLayout::kContiguous) {
    for (Column& column : *columns) {
      column.stride = std::max<int64_t>(column.width, 1);
      column.buffer = host.size();
      host.emplace_back(rows * column.stride, 0xFFFF);
    }
  } else {
    const int64_t gap = c.layout == RowLayout::kFused ? 8 : 3;
    int64_t width = gap;
    for (Column& column : *columns) {
      column.offset = width;
      width += (column.width + 7) / 8 * 8 + gap;
    }
    for (Column& column : *columns) column.stride = width;
    host.emplace_back(rows * width, 0xFFFF);
  }
  for (const Column& column : *columns) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < column.width; ++i) {
        host[column.buffer][row * column.stride + column.offset + i] =
            Bf16Bits((*column.values)[row * column.width + i]);
      }
    }
  }
  std::vector<DeviceMemory> buffers;
  for (const auto& values : host) buffers.emplace_back(values);
  return buffers;
}

std::vector<int64_t> Offsets(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets = {0};
  for (int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

int64_t StateSize(const DeltaRuleShape& shape) {
  return int64_t{shape.value_heads} * shape.value_dim * shape.key_dim;
}

}  // namespace

bool HaveDevice() {
  int count = 0;
  static const bool have = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  static const bool said = (have ? 0 : std::printf("NO CUDA DEVICE: GPU tests are skipped\n")) > 0;
  (void)said;
  return have;
}

// The rows of o, and whether everything around them still is as it was made: 0xFF.
void ReadRows(const DeviceMemory& o, int64_t rows, int64_t width, int64_t stride,
              ForwardResult* result) {
  const std::vector<uint16_t> bits = o.Read<uint16_t>();
  result->o.resize(rows * width);
  result->outside_untouched = true;
  for (size_t i = 0; i < bits.size(); ++i) {
    const int64_t row = i / stride, column = i % stride;
    if (row < rows && column < width) {
      result->o[row * width + column] = FromBf16Bits(bits[i]);
    } else if (bits[i] != 0xFFFF) {
      result->outside_untouched = false;
    }
  }
}

Status RunForward(const ForwardCase& c, const kernels::cuda::ForwardTuning& tuning,
                  ForwardResult* result) {
  const DeltaRuleShape& shape = c.shape;
  std::vector<Column> columns = Columns(c);
  const std::vector<DeviceMemory> buffers = UploadRows(c, &columns);
  auto view = [&](int i) {
    const Column& column = columns[i];
    return kernels::ConstRows{buffers[column.buffer].as<uint16_t>() + column.offset, DType::kBF16,
                              column.stride};
  };
  const DeviceMemory a_log(c.rows.a_log), dt_bias(c.rows.dt_bias);
  kernels::DeltaRuleForwardParams params;
  params.shape = shape;
  params.in = {view(0),
               view(1),
               view(2),
               view(3),
               view(4),
               c.rows.a_log.empty() ? nullptr : a_log.as<float>(),
               c.rows.dt_bias.empty() ? nullptr : dt_bias.as<float>()};
  const std::vector<int64_t> offsets = Offsets(c.lengths);
  params.offsets = offsets;

  const int64_t width = int64_t{shape.value_heads} * shape.value_dim;
  const int64_t o_stride = c.layout == RowLayout::kContiguous ? width
                           : c.layout == RowLayout::kFused    ? width + 16
                                                              : width + 5;
  const DeviceMemory o((c.rows.rows + 64) * o_stride * 2);
  params.o = {o.as<void>(), DType::kBF16, o_stride};

  std::vector<DeviceMemory> initial, finals, checkpoint_states;
  std::vector<const float*> initial_pointers;
  std::vector<float*> final_pointers;
  std::vector<kernels::StateCheckpoint> checkpoints;
  const size_t state_bytes = StateSize(shape) * sizeof(float);
  for (size_t i = 0; i < c.lengths.size(); ++i) {
    const bool zero = c.initial.empty() || c.initial[i].empty();
    initial.emplace_back(zero ? std::vector<float>{} : c.initial[i]);
    initial_pointers.push_back(zero ? nullptr : initial.back().as<float>());
    finals.emplace_back(state_bytes);
    final_pointers.push_back(finals.back().as<float>());
  }
  for (const auto& [sequence, tokens] : c.checkpoints) {
    checkpoint_states.emplace_back(state_bytes);
    checkpoints.push_back({sequence, tokens, checkpoint_states.back().as<float>()});
  }
  params.initial_states = initial_pointers.data();
  params.final_states = final_pointers.data();
  params.checkpoints = checkpoints;

  kernels::cuda::ForwardWorkspace workspace;
  if (Status s = kernels::cuda::DeltaRuleForward(params, tuning, &workspace, nullptr); !s.ok()) {
    return s;
  }
  CheckCuda(cudaDeviceSynchronize());

  ReadRows(o, c.rows.rows, width, o_stride, result);
  result->final_states.clear();
  result->checkpoints.clear();
  for (const DeviceMemory& state : finals) result->final_states.push_back(state.Read<float>());
  for (const DeviceMemory& s : checkpoint_states) result->checkpoints.push_back(s.Read<float>());
  return {};
}

DeltaRuleRows SliceRows(const DeltaRuleShape& shape, const DeltaRuleRows& rows, int64_t first,
                        int64_t count) {
  auto slice = [&](const std::vector<float>& from, int64_t width) {
    if (from.empty()) return std::vector<float>{};
    return std::vector<float>(from.begin() + first * width, from.begin() + (first + count) * width);
  };
  DeltaRuleRows out;
  out.rows = count;
  out.q = slice(rows.q, int64_t{shape.heads} * shape.key_dim);
  out.k = slice(rows.k, int64_t{shape.heads} * shape.key_dim);
  out.v = slice(rows.v, int64_t{shape.value_heads} * shape.value_dim);
  out.f = slice(rows.f, int64_t{shape.value_heads} * GateWidth(shape));
  out.beta = slice(rows.beta, shape.value_heads);
  out.a_log = rows.a_log;
  out.dt_bias = rows.dt_bias;
  return out;
}

ReferenceResult RunReference(const ForwardCase& c) {
  ReferenceResult result;
  int64_t first = 0;
  for (size_t i = 0; i < c.lengths.size(); ++i) {
    std::vector<double> state(StateSize(c.shape), 0.0);
    if (!c.initial.empty() && !c.initial[i].empty()) {
      state.assign(c.initial[i].begin(), c.initial[i].end());
    }
    const std::vector<double> o =
        ReferenceForward(c.shape, SliceRows(c.shape, c.rows, first, c.lengths[i]), &state);
    result.o.insert(result.o.end(), o.begin(), o.end());
    result.final_states.push_back(std::move(state));
    first += c.lengths[i];
  }
  return result;
}

ForwardErrors CompareWithReference(const ForwardCase& c, const ForwardResult& result) {
  const ReferenceResult reference = RunReference(c);
  const int heads = c.shape.value_heads;
  ForwardErrors errors;
  if (c.rows.rows > 0) {
    errors.o = MaxHeadRelativeError(result.o, reference.o, c.rows.rows, heads, c.shape.value_dim);
  }
  for (size_t i = 0; i < c.lengths.size(); ++i) {
    if (c.lengths[i] == 0 && (c.initial.empty() || c.initial[i].empty())) continue;
    errors.state = std::max(
        errors.state, MaxHeadRelativeError(result.final_states[i], reference.final_states[i], 1,
                                           heads, int64_t{c.shape.value_dim} * c.shape.key_dim));
  }
  return errors;
}

float RoundToBf16(float x) { return FromBf16Bits(Bf16Bits(x)); }

void RoundAllToBf16(std::vector<float>* values) {
  for (float& x : *values) x = RoundToBf16(x);
}

float RawGate(const DeltaRuleShape& shape, double g) {
  switch (shape.gate) {
    case GateKind::kScalarSoftplus:
    case GateKind::kChannelSoftplus:
      return RoundToBf16(static_cast<float>(-g > 30.0 ? -g : std::log(std::expm1(-g))));
    case GateKind::kChannelLowerBound: {
      const double share = std::min(g / shape.lower_bound, 1.0 - 1e-12);
      return RoundToBf16(static_cast<float>(std::log(share / (1.0 - share))));
    }
    default:
      return RoundToBf16(static_cast<float>(g));
  }
}

DeltaRuleRows RandomRows(const DeltaRuleShape& shape, int64_t rows, double decay, Random* random) {
  DeltaRuleRows out;
  out.rows = rows;
  out.q = random->NormalVector(rows * shape.heads * shape.key_dim);
  out.k = random->NormalVector(rows * shape.heads * shape.key_dim);
  out.v = random->NormalVector(rows * shape.value_heads * shape.value_dim);
  out.f.resize(rows * shape.value_heads * GateWidth(shape));
  for (float& f : out.f) {
    f = RawGate(shape, std::max(decay * std::exp(0.7 * random->Normal()),
                                shape.gate == GateKind::kChannelLowerBound ? -4.99 : -1e30));
  }
  if (shape.write == kernels::WriteRule::kDelta) {
    out.beta = shape.beta_is_logit ? random->NormalVector(rows * shape.value_heads)
                                   : random->UniformVector(rows * shape.value_heads, 0.0, 2.0);
  }
  const bool activated = shape.gate != GateKind::kNone &&
                         shape.gate != GateKind::kScalarPreactivated &&
                         shape.gate != GateKind::kChannelPreactivated;
  if (activated) {
    out.a_log = random->UniformVector(shape.value_heads, -0.3, 0.3);
    out.dt_bias = random->UniformVector(int64_t{shape.value_heads} * GateWidth(shape), -0.2, 0.2);
  }
  for (auto* values : {&out.q, &out.k, &out.v, &out.f, &out.beta}) RoundAllToBf16(values);
  return out;
}

}  // namespace deltafill::test
