#include "kernels/cuda/latent_plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cuda/latent_limits.h"
#include "kernels/param_checks.h"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kHeadsMax = 1 << 12;

Status CheckDim(const std::string& field, int64_t value, int64_t low, int64_t high) {
  if (Status s = CheckRange(field, value, low, high); !s.ok()) {
    return {value < low ? StatusCode::kInvalidArgument : StatusCode::kUnsupported, s.message()};
  }
  if (value % 8 == 0) return {};
  return {StatusCode::kUnsupported, field + ": " + std::to_string(value) +
                                        " is not a multiple of 8; the CUDA backend needs one"};
}

Status CheckRows(const std::string& field, const ConstRows& rows, int64_t count, int64_t width) {
  if (rows.dtype != DType::kBF16) {
    return {StatusCode::kUnsupported, field + ".dtype: the CUDA backend takes bf16 rows"};
  }
  if (count == 0) return {};
  if (rows.data == nullptr) return InvalidArgument(field + ".data: is null");
  if (rows.row_stride < width) {
    return InvalidArgument(field + ".row_stride: " + std::to_string(rows.row_stride) +
                           " is less than the width " + std::to_string(width));
  }
  if (reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.row_stride % 8 == 0) return {};
  return InvalidArgument(field + ": rows are not aligned to 16 bytes");
}

Status CheckOffsets(SequenceOffsets offsets, size_t sequences) {
  if (offsets.empty()) return InvalidArgument("offsets: is empty; must have sequences + 1 entries");
  if (offsets.front() != 0) return InvalidArgument("offsets[0]: is not 0");
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) {
      return InvalidArgument("offsets[" + std::to_string(i) + "]: is less than the entry before");
    }
  }
  if (offsets.size() == sequences + 1) return {};
  return InvalidArgument("sequences.size(): " + std::to_string(sequences) + " is not the " +
                         std::to_string(offsets.size() - 1) + " sequences of offsets");
}

// That pages cover positions [first, end) and are there.
Status CheckPages(const LatentSequence& sequence, size_t index, int64_t first, int64_t end) {
  const std::string field = "sequences[" + std::to_string(index) + "]";
  if (Status s = CheckRange(field + ".first_token", sequence.first_token, 0, kLatentTokensMax);
      !s.ok()) {
    return s;
  }
  const int64_t pages = (end + kLatentPageTokens - 1) / kLatentPageTokens;
  if (static_cast<int64_t>(sequence.pages.size()) < pages) {
    return InvalidArgument(field + ".pages.size(): " + std::to_string(sequence.pages.size()) +
                           " is less than the " + std::to_string(pages) + " pages of " +
                           std::to_string(end) + " tokens");
  }
  for (int64_t page = first / kLatentPageTokens; page < pages; ++page) {
    const void* const rows = sequence.pages[static_cast<size_t>(page)];
    if (rows != nullptr && reinterpret_cast<uintptr_t>(rows) % 16 == 0) continue;
    return InvalidArgument(field + ".pages[" + std::to_string(page) + "]" +
                           (rows == nullptr ? ": is null" : ": is not aligned to 16 bytes"));
  }
  return {};
}

}  // namespace

float LatentScale(const LatentShape& shape) {
  if (shape.scale != 0.0f) return shape.scale;
  return 1.0f / std::sqrt(static_cast<float>(shape.nope_dim + shape.rope_dim));
}

LatentInstance LatentInstanceFor(const LatentShape& shape) {
  const int query_dim = shape.nope_dim + shape.rope_dim;
  for (const LatentInstance instance : {LatentInstance{64, 64}, {128, 128}, {192, 128}}) {
    if (query_dim <= instance.query_dim && shape.value_dim <= instance.value_dim) return instance;
  }
  return {};
}

Status CheckLatentShape(const LatentShape& shape) {
  if (Status s = CheckRange("shape.heads", shape.heads, 1, kHeadsMax); !s.ok()) return s;
  if (Status s = CheckDim("shape.nope_dim", shape.nope_dim, 8, kLatentStepNopeMax); !s.ok())
    return s;
  if (Status s = CheckDim("shape.rope_dim", shape.rope_dim, 0, kLatentStepRopeMax); !s.ok()) {
    return s;
  }
  if (Status s = CheckDim("shape.value_dim", shape.value_dim, 8, 128); !s.ok()) return s;
  if (Status s = CheckDim("shape.rank", shape.rank, 8, kLatentStepRankMax); !s.ok()) return s;
  if (!(std::isfinite(shape.scale) && shape.scale >= 0.0f)) {
    return InvalidArgument("shape.scale: is not a finite number >= 0");
  }
  if (LatentInstanceFor(shape).query_dim != 0) return {};
  return {StatusCode::kUnsupported,
          "shape.nope_dim + shape.rope_dim: " + std::to_string(shape.nope_dim + shape.rope_dim) +
              " is more than the 192 that the CUDA backend has"};
}

Status CheckLatentAppend(const LatentAppendParams& params) {
  if (Status s = CheckDim("rank", params.rank, 8, 1 << 16); !s.ok()) return s;
  if (Status s = CheckDim("rope_dim", params.rope_dim, 0, 1 << 16); !s.ok()) return s;
  if (params.norm_weight == nullptr) return InvalidArgument("norm_weight: is null");
  if (!(params.eps >= 0.0f && params.eps <= 1.0f)) return InvalidArgument("eps: is not in [0, 1]");
  if (Status s = CheckOffsets(params.offsets, params.sequences.size()); !s.ok()) return s;
  for (size_t i = 0; i < params.sequences.size(); ++i) {
    const int64_t rows = params.offsets[i + 1] - params.offsets[i];
    const int64_t first = params.sequences[i].first_token;
    if (rows == 0) continue;
    if (Status s = CheckPages(params.sequences[i], i, first, first + rows); !s.ok()) return s;
  }
  return CheckRows("x", params.x, params.offsets.back(), params.rank + params.rope_dim);
}

Status CheckLatentPrefill(const LatentPrefillParams& params, const LatentShape& shape) {
  if (Status s = CheckOffsets(params.offsets, params.sequences.size()); !s.ok()) return s;
  for (size_t i = 0; i < params.sequences.size(); ++i) {
    const int64_t rows = params.offsets[i + 1] - params.offsets[i];
    const int64_t first = params.sequences[i].first_token;
    if (rows == 0) continue;
    if (first % kBlockTokens != 0) {
      return InvalidArgument("sequences[" + std::to_string(i) +
                             "].first_token: " + std::to_string(first) + " is not a multiple of " +
                             std::to_string(kBlockTokens));
    }
    if (Status s = CheckPages(params.sequences[i], i, 0, first + rows); !s.ok()) return s;
  }
  const int64_t rows = params.offsets.back();
  if (Status s = CheckRows("q", params.q, rows, shape.QueryWidth()); !s.ok()) return s;
  return CheckRows("o", params.o, rows, shape.OutputWidth());
}

Status CheckLatentStep(const LatentStepParams& params, const LatentShape& shape) {
  const int64_t batch = static_cast<int64_t>(params.sequences.size());
  if (Status s = CheckRange("sequences.size()", batch, 0, 65535); !s.ok()) return s;
  for (size_t i = 0; i < params.sequences.size(); ++i) {
    const int64_t end = params.sequences[i].first_token + 1;
    if (Status s = CheckPages(params.sequences[i], i, 0, end); !s.ok()) return s;
  }
  if (Status s = CheckRows("q", params.q, batch, shape.QueryWidth()); !s.ok()) return s;
  return CheckRows("o", params.o, batch, shape.OutputWidth());
}

std::vector<LatentChunk> PlanLatentChunks(int64_t first_token, int64_t rows, int64_t chunk_tokens) {
  std::vector<LatentChunk> chunks;
  const int64_t end = first_token + rows;
  for (int64_t begin = 0; begin < end; begin += chunk_tokens) {
    chunks.push_back({begin, std::min(begin + chunk_tokens, end),
                      std::max<int64_t>(begin - first_token, 0) / kBlockTokens});
  }
  return chunks;
}

std::vector<LatentStepGroup> PlanLatentStep(const std::vector<int64_t>& positions) {
  std::vector<LatentStepGroup> groups;
  for (size_t i = 0; i < positions.size(); ++i) {
    const int64_t parts = positions[i] / kLatentPartTokens + 1;
    if (groups.empty() || groups.back().parts + parts > kLatentPartsHeld) {
      groups.push_back({static_cast<int64_t>(i), 0, 0});
    }
    ++groups.back().count;
    groups.back().parts += parts;
  }
  return groups;
}

}  // namespace deltafill::kernels::cuda
