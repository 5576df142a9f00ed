// The absorbed form of one decoding step: with W_k folded into the query and W_v applied after the
// average, a head's keys and values are the latents themselves.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/latent_operators.h"
#include "kernels/cpu/latent_tiles.h"
#include "kernels/cpu/panel_product.h"
#include "kernels/cpu/prefill_operators.h"

namespace deltafill::kernels::cpu {
namespace {

// Keys of a part: the unit of parallel work, at absolute positions.
constexpr int64_t kPartTokens = 1024;
static_assert(kPartTokens % kKeyTile == 0 && kLatentPageTokens % kPartTokens == 0);
// Parts whose results are held at once. Merging is sequential, so it does not show in the bits.
constexpr int64_t kPartsHeld = 64;
constexpr int64_t kScoreStride = PaddedStride(kKeyTile);

// A running softmax of all heads with its average of latents.
struct HeadAverages {
  float* max = nullptr;      // [heads]
  float* sum = nullptr;      // [heads]
  float* latents = nullptr;  // [heads, rank], not divided by sum

  HeadAverages At(int64_t index, const LatentShape& shape) const {
    return {max + index * shape.heads, sum + index * shape.heads,
            latents + index * shape.heads * shape.rank};
  }
};

HeadAverages CutAverages(ScratchCutter& cutter, int64_t count, const LatentShape& shape) {
  return {cutter.Cut<float>(count * shape.heads), cutter.Cut<float>(count * shape.heads),
          cutter.Cut<float>(count * shape.heads * shape.rank)};
}

struct StepScratch {
  StepScratch(const LatentShape& shape, int64_t batch, void* memory) : cutter(memory) {
    queries = cutter.Cut<float>(batch * shape.heads * shape.LatentWidth());
    running = CutAverages(cutter, batch, shape);
    parts = CutAverages(cutter, kPartsHeld, shape);
  }
  ScratchCutter cutter;
  float* queries;  // [batch, heads, LatentWidth], scaled
  HeadAverages running;
  HeadAverages parts;
};

struct PartScratch {
  PartScratch(const LatentShape& shape, void* memory) : cutter(memory) {
    scores = cutter.Cut<float>(shape.heads * kScoreStride);
    product = cutter.Cut<float>(shape.heads * shape.rank);
    rescale = cutter.Cut<float>(shape.heads);
    last_block = cutter.Cut<float>(kBlockTokens * shape.LatentWidth());
  }
  ScratchCutter cutter;
  float* scores;
  float* product;
  float* rescale;
  float* last_block;  // latents of the position's own block, zeros after it
};

// A sequence's part of keys.
struct Part {
  int64_t sequence = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// One part of one sequence, all heads.
class PartAttention {
 public:
  PartAttention(const LatentShape& shape, const LatentSequence& sequence, const float* queries,
                const HeadAverages& result, const PartScratch& scratch)
      : shape_(shape), sequence_(sequence), queries_(queries), result_(result), scratch_(scratch) {}

  // Full tiles, then whole blocks, then what is left of a block beside zeros.
  Status Take(int64_t begin, int64_t end) const {
    const int64_t whole = begin + (end - begin) / kBlockTokens * kBlockTokens;
    const int64_t width = shape_.LatentWidth();
    for (int64_t token = begin; token < whole; token += kKeyTile) {
      const int64_t keys = std::min(kKeyTile, whole - token);
      const float* const latents = LatentRow(sequence_, token, width);
      if (Status s = TakeTile(latents, keys, keys, token == begin); !s.ok()) return s;
    }
    const int64_t keys = end - whole;
    if (keys == 0) return {};
    std::memcpy(scratch_.last_block, LatentRow(sequence_, whole, width),
                static_cast<size_t>(keys * width) * sizeof(float));
    std::memset(scratch_.last_block + keys * width, 0,
                static_cast<size_t>((kBlockTokens - keys) * width) * sizeof(float));
    return TakeTile(scratch_.last_block, kBlockTokens, keys, whole == begin);
  }

 private:
  Status TakeTile(const float* latents, int64_t width, int64_t valid, bool first) const {
    Status status = Multiply({.rows = shape_.heads,
                              .columns = width,
                              .depth = shape_.LatentWidth(),
                              .a = queries_,
                              .a_stride = shape_.LatentWidth(),
                              .b = latents,
                              .b_stride = shape_.LatentWidth(),
                              .b_transposed = true,
                              .c = scratch_.scores,
                              .c_stride = kScoreStride});
    if (!status.ok()) return status;
    AddTile({scratch_.scores, kScoreStride, shape_.heads, valid, false}, first,
            {result_.max, result_.sum, scratch_.rescale});
    for (int64_t head = 0; head < shape_.heads && valid < width; ++head) {
      std::memset(scratch_.scores + head * kScoreStride + valid, 0,
                  static_cast<size_t>(width - valid) * sizeof(float));
    }
    status = Multiply({.rows = shape_.heads,
                       .columns = shape_.rank,
                       .depth = width,
                       .a = scratch_.scores,
                       .a_stride = kScoreStride,
                       .b = latents,
                       .b_stride = shape_.LatentWidth(),
                       .c = scratch_.product,
                       .c_stride = shape_.rank});
    if (!status.ok()) return status;
    AddProduct(scratch_.product, shape_.rank, first, scratch_.rescale,
               {result_.latents, shape_.rank, shape_.heads, shape_.rank});
    return {};
  }

  const LatentShape& shape_;
  const LatentSequence& sequence_;
  const float* queries_;
  const HeadAverages& result_;
  const PartScratch& scratch_;
};

// W_k or W_v of a head.
HeadMatrix MatrixOf(const CpuLatentProjection& projection, int64_t head, bool value) {
  const LatentShape& shape = projection.shape();
  const int64_t first = head * projection.HeadRows() + (value ? shape.nope_dim : 0);
  const char* const at = static_cast<const char*>(projection.rows()) +
                         static_cast<size_t>(first * shape.rank) * SizeOf(projection.dtype());
  return {at, projection.dtype(), value ? shape.value_dim : shape.nope_dim, shape.rank};
}

// Absorbs W_k into all queries.
void MakeQueries(const LatentStepParams& params, const CpuLatentProjection& projection,
                 float* queries, ThreadTeam& team) {
  const LatentShape& shape = projection.shape();
  const int64_t batch = static_cast<int64_t>(params.sequences.size());
  team.ParallelFor(batch * shape.heads, [&](int64_t index, int) {
    const int64_t head = index % shape.heads;
    const float* const q =
        RowOf(params.q, index / shape.heads) + head * (shape.nope_dim + shape.rope_dim);
    float* const query = queries + index * shape.LatentWidth();
    MultiplyTransposed(MatrixOf(projection, head, false), q, shape.scale, query);
    if (shape.rope_dim > 0) {
      PackScaled(q + shape.nope_dim, 0, 1, shape.rope_dim, shape.scale, query + shape.rank);
    }
  });
}

// Computes the parts [first, first + count) of the list at once, then takes them in, in order.
Status TakeParts(const LatentStepParams& params, const LatentShape& shape,
                 std::span<const Part> list, const StepScratch& step, ThreadTeam& team,
                 LaneScratch& scratch) {
  FirstFailure failure(team.threads());
  team.ParallelFor(static_cast<int64_t>(list.size()), [&](int64_t index, int thread) {
    const Part& part = list[static_cast<size_t>(index)];
    const PartScratch parts(shape, scratch.OfThread(thread));
    const HeadAverages result = step.parts.At(index, shape);
    const float* const queries = step.queries + part.sequence * shape.heads * shape.LatentWidth();
    const PartAttention attention(shape, params.sequences[static_cast<size_t>(part.sequence)],
                                  queries, result, parts);
    failure.Keep(thread, attention.Take(part.begin, part.end));
  });
  if (Status status = failure.Take(); !status.ok()) return status;
  for (size_t i = 0; i < list.size(); ++i) {
    const HeadAverages part = step.parts.At(static_cast<int64_t>(i), shape);
    const HeadAverages running = step.running.At(list[i].sequence, shape);
    MergePart({part.max, part.sum, nullptr}, part.latents, list[i].begin == 0,
              {running.max, running.sum, nullptr},
              {running.latents, shape.rank, shape.heads, shape.rank});
  }
  return {};
}

}  // namespace

Status LatentStep(const LatentStepParams& params, const CpuLatentProjection& projection,
                  ThreadTeam& team, LaneScratch& scratch) {
  const LatentShape& shape = projection.shape();
  const int64_t batch = static_cast<int64_t>(params.sequences.size());
  const size_t thread_bytes = PartScratch(shape, nullptr).cutter.bytes();
  const size_t shared_bytes = StepScratch(shape, batch, nullptr).cutter.bytes();
  if (Status s = scratch.ReservePerThread(thread_bytes, "latent step"); !s.ok()) return s;
  if (Status s = scratch.ReserveShared(shared_bytes, "latent step"); !s.ok()) return s;
  const StepScratch step(shape, batch, scratch.shared.as<void>());
  MakeQueries(params, projection, step.queries, team);

  std::vector<Part> held;
  held.reserve(static_cast<size_t>(kPartsHeld));
  for (int64_t s = 0; s < batch; ++s) {
    const int64_t end = params.sequences[static_cast<size_t>(s)].first_token + 1;
    for (int64_t begin = 0; begin < end; begin += kPartTokens) {
      held.push_back({s, begin, std::min(begin + kPartTokens, end)});
      const bool last = s + 1 == batch && begin + kPartTokens >= end;
      if (static_cast<int64_t>(held.size()) < kPartsHeld && !last) continue;
      if (Status status = TakeParts(params, shape, held, step, team, scratch); !status.ok()) {
        return status;
      }
      held.clear();
    }
  }

  team.ParallelFor(batch * shape.heads, [&](int64_t index, int) {
    const int64_t head = index % shape.heads;
    MultiplyDivided(MatrixOf(projection, head, true), step.running.latents + index * shape.rank,
                    step.running.sum[index],
                    RowOf(params.o, index / shape.heads) + head * shape.value_dim);
  });
  return {};
}

}  // namespace deltafill::kernels::cpu
