#include "kernels/cpu/latent_validation.h"

#include <cmath>
#include <string>

#include "kernels/cpu/param_checks.h"
#include "kernels/cpu/validate.h"

namespace deltafill::kernels::cpu {
namespace {

// That the pages cover `rows` rows from the first token on. Sequences without rows are not read.
Status CheckSequence(const LatentSequence& sequence, size_t index, int64_t rows) {
  if (rows == 0) return {};
  const std::string field = "sequences[" + std::to_string(index) + "]";
  DELTAFILL_CHECK(CheckRange(field + ".first_token", sequence.first_token, 0, kRowsMax));
  const int64_t end = sequence.first_token + rows;
  const int64_t pages = (end + kLatentPageTokens - 1) / kLatentPageTokens;
  if (static_cast<int64_t>(sequence.pages.size()) < pages) {
    return InvalidArgument(field + ".pages.size(): " + std::to_string(sequence.pages.size()) +
                           " is less than the " + std::to_string(pages) + " pages of " +
                           std::to_string(end) + " tokens");
  }
  return {};
}

Status CheckPages(const LatentSequence& sequence, size_t index, int64_t first, int64_t end) {
  for (int64_t page = first / kLatentPageTokens; page * kLatentPageTokens < end; ++page) {
    const void* const rows = sequence.pages[static_cast<size_t>(page)];
    // Every call looks at every page: only a bad one gets a name.
    if (rows != nullptr && reinterpret_cast<uintptr_t>(rows) % alignof(float) == 0) continue;
    DELTAFILL_CHECK(CheckFloats(
        "sequences[" + std::to_string(index) + "].pages[" + std::to_string(page) + "]", rows));
  }
  return {};
}

Status CheckCount(size_t sequences, int64_t expected) {
  if (static_cast<int64_t>(sequences) == expected) return {};
  return InvalidArgument("sequences.size(): " + std::to_string(sequences) + " is not the " +
                         std::to_string(expected) + " sequences of offsets");
}

Status CheckProjection(const LatentProjection* projection, const CpuLatentProjection** out) {
  DELTAFILL_CHECK(CheckNotNull("projection", projection));
  *out = dynamic_cast<const CpuLatentProjection*>(projection);
  if (*out != nullptr) return {};
  return InvalidArgument("projection: was not made by a CPU backend");
}

// Packed sequences; `check(sequence, its index, its rows)` looks at those that have rows.
template <typename Check>
Status CheckPacked(SequenceOffsets offsets, std::span<const LatentSequence> sequences,
                   const Check& check) {
  DELTAFILL_CHECK(CheckOffsets(offsets));
  DELTAFILL_CHECK(CheckCount(sequences.size(), static_cast<int64_t>(offsets.size()) - 1));
  for (size_t s = 0; s < sequences.size(); ++s) {
    const int64_t rows = offsets[s + 1] - offsets[s];
    DELTAFILL_CHECK(CheckSequence(sequences[s], s, rows));
    if (rows > 0) DELTAFILL_CHECK(check(sequences[s], s, rows));
  }
  return {};
}

}  // namespace

Status ValidateShape(const LatentShape& shape) {
  DELTAFILL_CHECK(CheckRange("shape.heads", shape.heads, 1, kLatentHeadsMax));
  DELTAFILL_CHECK(CheckRange("shape.nope_dim", shape.nope_dim, 1, kLatentDimMax));
  DELTAFILL_CHECK(CheckRange("shape.rope_dim", shape.rope_dim, 0, kLatentDimMax));
  DELTAFILL_CHECK(CheckRange("shape.value_dim", shape.value_dim, 1, kLatentDimMax));
  DELTAFILL_CHECK(CheckRange("shape.rank", shape.rank, 1, kLatentDimMax));
  if (std::isfinite(shape.scale) && shape.scale >= 0.0f) return {};
  return InvalidArgument("shape.scale: " + std::to_string(shape.scale) +
                         " is not a finite number >= 0");
}

Status Validate(const LatentAppendParams& params) {
  DELTAFILL_CHECK(CheckRange("rank", params.rank, 1, kLatentDimMax));
  DELTAFILL_CHECK(CheckRange("rope_dim", params.rope_dim, 0, kLatentDimMax));
  DELTAFILL_CHECK(CheckFloats("norm_weight", params.norm_weight));
  if (!(params.eps >= 0.0f && params.eps <= 1.0f)) {
    return InvalidArgument("eps: " + std::to_string(params.eps) + " is not in [0, 1]");
  }
  DELTAFILL_CHECK(CheckPacked(
      params.offsets, params.sequences, [](const LatentSequence& sequence, size_t s, int64_t rows) {
        return CheckPages(sequence, s, sequence.first_token, sequence.first_token + rows);
      }));
  return CheckRows("x", params.x, params.offsets.back(), params.rank + params.rope_dim);
}

Status Validate(const LatentPrefillParams& params, const CpuLatentProjection** projection) {
  DELTAFILL_CHECK(CheckProjection(params.projection, projection));
  DELTAFILL_CHECK(CheckPacked(params.offsets, params.sequences,
                              [](const LatentSequence& sequence, size_t s, int64_t rows) -> Status {
                                if (sequence.first_token % kBlockTokens != 0) {
                                  return InvalidArgument(
                                      "sequences[" + std::to_string(s) +
                                      "].first_token: " + std::to_string(sequence.first_token) +
                                      " is not a multiple of " + std::to_string(kBlockTokens));
                                }
                                return CheckPages(sequence, s, 0, sequence.first_token + rows);
                              }));
  const LatentShape& shape = (*projection)->shape();
  DELTAFILL_CHECK(CheckRows("q", params.q, params.offsets.back(), shape.QueryWidth()));
  return CheckRows("o", params.o, params.offsets.back(), shape.OutputWidth());
}

Status Validate(const LatentStepParams& params, const CpuLatentProjection** projection) {
  DELTAFILL_CHECK(CheckProjection(params.projection, projection));
  const int64_t batch = static_cast<int64_t>(params.sequences.size());
  DELTAFILL_CHECK(CheckRange("sequences.size()", batch, 0, kRowsMax));
  for (size_t s = 0; s < params.sequences.size(); ++s) {
    const LatentSequence& sequence = params.sequences[s];
    DELTAFILL_CHECK(CheckSequence(sequence, s, 1));
    DELTAFILL_CHECK(CheckPages(sequence, s, 0, sequence.first_token + 1));
  }
  const LatentShape& shape = (*projection)->shape();
  DELTAFILL_CHECK(CheckRows("q", params.q, batch, shape.QueryWidth()));
  return CheckRows("o", params.o, batch, shape.OutputWidth());
}

}  // namespace deltafill::kernels::cpu
