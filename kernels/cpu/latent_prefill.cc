// Prefill attention over the latent cache. Keys and values of a chunk of tokens are expanded once
// for all heads and panels, then every (head, panel) takes the chunk in. What is carried from chunk
// to chunk is the running softmax, and the unnormalised output in o itself, so chunks are a matter
// of memory alone.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/latent_operators.h"
#include "kernels/cpu/latent_tiles.h"
#include "kernels/cpu/panel_product.h"
#include "kernels/cpu/prefill_operators.h"

namespace deltafill::kernels::cpu {
namespace {

constexpr int64_t kScoreStride = PaddedStride(kKeyTile);

// One call's sizes and shared scratch.
struct PrefillPlan {
  // rows_max, tokens_max: the most of any sequence.
  PrefillPlan(const CpuLatentProjection& projection, int64_t rows_max, int64_t tokens_max,
              int64_t chunk_bytes)
      : shape(projection.shape()),
        query_dim(shape.nope_dim + shape.rope_dim),
        key_stride(PaddedStride(query_dim)),
        value_stride(PaddedStride(shape.value_dim)),
        panel_rows_max((rows_max + kBlockTokens - 1) / kBlockTokens * kBlockTokens) {
    const int64_t token_bytes =
        shape.heads * (key_stride + value_stride) * static_cast<int64_t>(sizeof(float));
    const int64_t tiles =
        std::min(chunk_bytes / token_bytes / kKeyTile, (tokens_max + kKeyTile - 1) / kKeyTile);
    chunk_tokens = std::max(tiles, int64_t{1}) * kKeyTile;
  }

  // Returns the bytes needed; memory nullptr: only that.
  size_t Place(void* memory) {
    ScratchCutter cutter(memory);
    keys = cutter.Cut<float>(shape.heads * chunk_tokens * key_stride);
    values = cutter.Cut<float>(shape.heads * chunk_tokens * value_stride);
    max = cutter.Cut<float>(shape.heads * panel_rows_max);
    sum = cutter.Cut<float>(shape.heads * panel_rows_max);
    return cutter.bytes();
  }

  const LatentShape& shape;
  const int64_t query_dim;
  const int64_t key_stride;
  const int64_t value_stride;
  const int64_t panel_rows_max;
  int64_t chunk_tokens;
  float* keys = nullptr;    // [heads, chunk_tokens, key_stride]
  float* values = nullptr;  // [heads, chunk_tokens, value_stride]
  float* max = nullptr;     // [heads, panel_rows_max]
  float* sum = nullptr;     // [heads, panel_rows_max]
};

// A thread's scratch while it attends.
struct AttentionScratch {
  AttentionScratch(const PrefillPlan& plan, void* memory) : cutter(memory) {
    query = cutter.Cut<float>(kBlockTokens * plan.query_dim);
    scores = cutter.Cut<float>(kBlockTokens * kScoreStride);
    product = cutter.Cut<float>(kBlockTokens * plan.value_stride);
    rescale = cutter.Cut<float>(kBlockTokens);
  }
  ScratchCutter cutter;
  float* query;    // [64, query_dim], scaled
  float* scores;   // [64, kScoreStride]
  float* product;  // [64, value_stride]
  float* rescale;  // [64]
};

// One sequence of the call.
struct SequenceRun {
  const LatentSequence& latents;
  ConstRows q;    // from its first row on
  MutableRows o;  // the same
  int64_t rows = 0;
  int64_t end = 0;  // position after its last row
};

struct Chunk {
  int64_t begin = 0;
  int64_t end = 0;  // whole blocks; may pass the sequence's end
};

// Moves columns [first, first + width) of a product of a block with kv_b to keys and values.
void ScatterColumns(const PrefillPlan& plan, const float* product, int64_t stride, int64_t first,
                    int64_t width, int64_t chunk_row) {
  const int64_t nope = plan.shape.nope_dim;
  const int64_t head_columns = nope + plan.shape.value_dim;
  for (int64_t done = 0; done < width;) {
    const int64_t head = (first + done) / head_columns;
    const int64_t column = (first + done) % head_columns;
    const bool is_key = column < nope;
    const int64_t run = std::min(width - done, (is_key ? nope : head_columns) - column);
    const int64_t to_stride = is_key ? plan.key_stride : plan.value_stride;
    float* const to = (is_key ? plan.keys + column : plan.values + column - nope) +
                      (head * plan.chunk_tokens + chunk_row) * to_stride;
    for (int64_t row = 0; row < kBlockTokens; ++row) {
      std::memcpy(to + row * to_stride, product + row * stride + done,
                  static_cast<size_t>(run) * sizeof(float));
    }
    done += run;
  }
}

// The key part that heads share, to one head's keys; zeros past the last row.
void CopySharedPart(const PrefillPlan& plan, const float* latents, int64_t rows, int64_t head,
                    int64_t chunk_row) {
  const LatentShape& shape = plan.shape;
  float* const to =
      plan.keys + (head * plan.chunk_tokens + chunk_row) * plan.key_stride + shape.nope_dim;
  const size_t bytes = static_cast<size_t>(shape.rope_dim) * sizeof(float);
  for (int64_t row = 0; row < kBlockTokens && bytes > 0; ++row) {
    if (row < rows) {
      std::memcpy(to + row * plan.key_stride, latents + row * shape.LatentWidth() + shape.rank,
                  bytes);
    } else {
      std::memset(to + row * plan.key_stride, 0, bytes);
    }
  }
}

// Keys and values of the chunk's blocks, for all heads.
Status ExpandChunk(const PrefillPlan& plan, const CpuWeight& weight, const SequenceRun& run,
                   const Chunk& chunk, ThreadTeam& team, LaneScratch& scratch) {
  FirstFailure failure(team.threads());
  const int64_t blocks = (chunk.end - chunk.begin) / kBlockTokens;
  const int64_t width = plan.shape.LatentWidth();
  team.ParallelFor(blocks * (weight.tiles() + 1), [&](int64_t index, int thread) {
    const int64_t tile = index / blocks;
    const int64_t chunk_row = index % blocks * kBlockTokens;
    const int64_t token = chunk.begin + chunk_row;
    const int64_t rows = std::min(kBlockTokens, run.end - token);
    const float* const latents = LatentRow(run.latents, token, width);
    if (tile == weight.tiles()) {
      for (int64_t head = 0; head < plan.shape.heads; ++head) {
        CopySharedPart(plan, latents, rows, head, chunk_row);
      }
      return;
    }
    const PanelScratch parts(weight, scratch.OfThread(thread));
    if (!failure.Keep(thread, MultiplyPanel(weight, tile, latents, width, rows, parts))) return;
    ScatterColumns(plan, parts.product, ProductStride(weight, tile), tile * kTileColumns,
                   weight.tile_columns(tile), chunk_row);
  });
  return failure.Take();
}

// One head's panel, and where the chunk lies for it.
class PanelAttention {
 public:
  PanelAttention(const PrefillPlan& plan, const SequenceRun& run, const Chunk& chunk, int64_t head,
                 int64_t panel, const AttentionScratch& scratch)
      : plan_(plan),
        chunk_(chunk),
        scratch_(scratch),
        rows_(std::min(kBlockTokens, run.rows - panel * kBlockTokens)),
        block_(run.latents.first_token + panel * kBlockTokens),
        keys_(plan.keys + head * plan.chunk_tokens * plan.key_stride),
        values_(plan.values + head * plan.chunk_tokens * plan.value_stride) {
    const int64_t row = panel * kBlockTokens;
    const int64_t state = head * plan.panel_rows_max + row;
    softmax_ = {plan.max + state, plan.sum + state, scratch.rescale};
    output_ = {RowOf(run.o, row) + head * plan.shape.value_dim, run.o.row_stride, rows_,
               plan.shape.value_dim};
    PackScaled(RowOf(run.q, row) + head * plan.query_dim, run.q.row_stride, rows_, plan.query_dim,
               plan.shape.scale, scratch.query);
    std::memset(scratch.query + rows_ * plan.query_dim, 0,
                static_cast<size_t>((kBlockTokens - rows_) * plan.query_dim) * sizeof(float));
  }

  Status TakeChunk() const {
    const int64_t end = std::min(chunk_.end, block_);
    for (int64_t token = chunk_.begin; token < end; token += kKeyTile) {
      if (Status s = TakeTile(token, std::min(kKeyTile, end - token)); !s.ok()) return s;
    }
    return block_ < chunk_.end ? TakeOwnBlock() : Status();
  }

 private:
  Status Score(int64_t token, int64_t width) const {
    return Multiply({.rows = kBlockTokens,
                     .columns = width,
                     .depth = plan_.query_dim,
                     .a = scratch_.query,
                     .a_stride = plan_.query_dim,
                     .b = keys_ + (token - chunk_.begin) * plan_.key_stride,
                     .b_stride = plan_.key_stride,
                     .b_transposed = true,
                     .c = scratch_.scores,
                     .c_stride = kScoreStride});
  }

  Status TakeTile(int64_t token, int64_t width) const {
    if (Status status = Score(token, width); !status.ok()) return status;
    AddTile({scratch_.scores, kScoreStride, rows_, width, false}, token == 0, softmax_);
    Status status = Multiply({.rows = kBlockTokens,
                              .columns = plan_.shape.value_dim,
                              .depth = width,
                              .a = scratch_.scores,
                              .a_stride = kScoreStride,
                              .b = values_ + (token - chunk_.begin) * plan_.value_stride,
                              .b_stride = plan_.value_stride,
                              .c = scratch_.product,
                              .c_stride = plan_.value_stride});
    if (!status.ok()) return status;
    AddProduct(scratch_.product, plan_.value_stride, token == 0, scratch_.rescale, output_);
    return {};
  }

  Status TakeOwnBlock() const {
    if (Status status = Score(block_, kBlockTokens); !status.ok()) return status;
    const ScoreTile tile{scratch_.scores, kScoreStride, rows_, kBlockTokens, true};
    const bool first = block_ == 0;
    AddTile(tile, first, softmax_);
    FinishWithOwnBlock(tile, values_ + (block_ - chunk_.begin) * plan_.value_stride,
                       plan_.value_stride, first, softmax_, output_);
    return {};
  }

  const PrefillPlan& plan_;
  const Chunk& chunk_;
  const AttentionScratch& scratch_;
  const int64_t rows_;   // of this panel
  const int64_t block_;  // position of its first row
  const float* keys_;    // this head's, of the chunk
  const float* values_;
  RunningSoftmax softmax_;
  OutputRows output_;
};

Status AttendSequence(const PrefillPlan& plan, const CpuWeight& weight, const SequenceRun& run,
                      ThreadTeam& team, LaneScratch& scratch) {
  const int64_t panels = (run.rows + kBlockTokens - 1) / kBlockTokens;
  const int64_t last = run.latents.first_token + panels * kBlockTokens;
  Chunk chunk;
  for (; chunk.begin < last; chunk.begin = chunk.end) {
    chunk.end = std::min(chunk.begin + plan.chunk_tokens, last);
    if (Status s = ExpandChunk(plan, weight, run, chunk, team, scratch); !s.ok()) return s;

    // Panels that lie before the chunk are finished.
    const int64_t skipped =
        std::max(chunk.begin - run.latents.first_token, int64_t{0}) / kBlockTokens;
    const int64_t left = panels - skipped;
    FirstFailure failure(team.threads());
    team.ParallelFor(plan.shape.heads * left, [&](int64_t index, int thread) {
      const AttentionScratch parts(plan, scratch.OfThread(thread));
      const PanelAttention attention(plan, run, chunk, index / left, skipped + index % left, parts);
      failure.Keep(thread, attention.TakeChunk());
    });
    if (Status status = failure.Take(); !status.ok()) return status;
  }
  return {};
}

}  // namespace

Status LatentPrefill(const LatentPrefillParams& params, const CpuLatentProjection& projection,
                     ThreadTeam& team, LaneScratch& scratch, int64_t chunk_bytes) {
  int64_t rows_max = 0;
  int64_t tokens_max = 0;
  for (size_t s = 0; s < params.sequences.size(); ++s) {
    const int64_t rows = params.offsets[s + 1] - params.offsets[s];
    if (rows == 0) continue;
    rows_max = std::max(rows_max, rows);
    tokens_max = std::max(tokens_max, params.sequences[s].first_token + rows);
  }
  PrefillPlan plan(projection, rows_max, tokens_max, chunk_bytes);
  const size_t thread_bytes = std::max(PanelScratch::Bytes(projection.expansion()),
                                       AttentionScratch(plan, nullptr).cutter.bytes());
  if (Status s = scratch.ReservePerThread(thread_bytes, "latent prefill"); !s.ok()) return s;
  if (Status s = scratch.ReserveShared(plan.Place(nullptr), "latent prefill"); !s.ok()) return s;
  plan.Place(scratch.shared.as<void>());

  for (size_t s = 0; s < params.sequences.size(); ++s) {
    const int64_t first = params.offsets[s];
    const int64_t rows = params.offsets[s + 1] - first;
    if (rows == 0) continue;
    const LatentSequence& latents = params.sequences[s];
    const SequenceRun run{latents,
                          {RowOf(params.q, first), DType::kF32, params.q.row_stride},
                          {RowOf(params.o, first), DType::kF32, params.o.row_stride},
                          rows,
                          latents.first_token + rows};
    if (Status status = AttendSequence(plan, projection.expansion(), run, team, scratch);
        !status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace deltafill::kernels::cpu
