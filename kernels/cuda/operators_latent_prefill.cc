// Prefill attention of a lane's sequence: its keys and values, chunk by chunk, and the kernel that
// serves the shape on each.
#include <algorithm>
#include <vector>

#include "kernels/cuda/latent.h"
#include "kernels/cuda/latent_hopper.h"
#include "kernels/cuda/latent_pages.h"
#include "kernels/cuda/latent_plan.h"
#include "kernels/cuda/latent_projection.h"
#include "kernels/cuda/log2e.h"
#include "kernels/cuda/operators.h"

namespace deltafill::kernels::cuda {
namespace {

using Bf16 = __nv_bfloat16;

// For the keys of a chunk. Hopper's kernel finds its rotary keys one after the other.
Status ReserveKeys(const LatentShape& shape, int64_t chunk_rows, int64_t columns, bool hopper,
                   LatentWorkspace* w, cudaStream_t stream) {
  const size_t keys = static_cast<size_t>(chunk_rows);
  const size_t expanded = keys * static_cast<size_t>(columns) * sizeof(Bf16);
  if (Status s = w->expanded.Reserve(expanded, stream); !s.ok()) return s;
  if (!hopper) return {};
  return w->rope.Reserve(keys * static_cast<size_t>(shape.rope_dim) * sizeof(Bf16), stream);
}

// For what is carried from chunk to chunk, a state a row and head.
Status ReserveCarried(const LatentShape& shape, int64_t padded_rows, LatentWorkspace* w,
                      cudaStream_t stream) {
  const size_t states = static_cast<size_t>(padded_rows * shape.heads);
  const size_t values = static_cast<size_t>(LatentInstanceFor(shape).value_dim);
  if (Status s = w->sums.Reserve(states * values * sizeof(float), stream); !s.ok()) return s;
  return w->softmax.Reserve(states * sizeof(float2), stream);
}

}  // namespace

Status CudaOperators::ExpandLatents(const LatentSequence& sequence, int64_t begin, int64_t end,
                                    const CudaLatentProjection& projection, bool copies_rope) {
  const LatentShape& shape = projection.shape();
  const int64_t width = shape.LatentWidth(), columns = projection.weight().out_features();
  MatMulParams expand;
  for (int64_t token = begin; token < end; token += expand.rows) {
    expand.rows = std::min(kLatentPageTokens, end - token);
    Bf16* const latents = LatentRowOf(sequence, token, width);
    Bf16* const expanded = latent_.expanded.as<Bf16>() + (token - begin) * columns;
    // A token's keys and values are those of its own latent, whatever the chunk.
    if (Status s = Multiply(expand, projection.weight(), {latents, DType::kBF16, width},
                            {expanded, DType::kBF16, columns}, false);
        !s.ok()) {
      return s;
    }
    if (!copies_rope) continue;
    Bf16* const rope = latent_.rope.as<Bf16>() + (token - begin) * shape.rope_dim;
    if (Status s = CopyRows({latents + shape.rank, DType::kBF16, width},
                            {rope, DType::kBF16, shape.rope_dim}, expand.rows, shape.rope_dim);
        !s.ok()) {
      return s;
    }
  }
  return {};
}

Status CudaOperators::AttendSequence(const LatentPrefillParams& params, size_t index,
                                     const CudaLatentProjection& projection, bool hopper) {
  const LatentShape& shape = projection.shape();
  const LatentSequence& sequence = params.sequences[index];
  const int64_t first_row = params.offsets[index], rows = params.offsets[index + 1] - first_row;
  const std::vector<LatentChunk> chunks =
      PlanLatentChunks(sequence.first_token, rows, hopper ? kLatentChunkTokens : kLatentPageTokens);
  const cudaStream_t stream = stream_.get();
  if (Status s = ReserveKeys(shape, chunks[0].end, projection.weight().out_features(), hopper,
                             &latent_, stream);
      !s.ok()) {
    return s;
  }
  if (chunks.size() > 1) {
    const int64_t padded = hopper ? LatentHopperPaddedRows(rows)
                                  : (rows + kBlockTokens - 1) / kBlockTokens * kBlockTokens;
    if (Status s = ReserveCarried(shape, padded, &latent_, stream); !s.ok()) return s;
  }
  LatentChunkParams kernel;
  kernel.shape = shape;
  kernel.scale_log2 = LatentScale(shape) * kLog2E;
  kernel.expanded = latent_.expanded.as<Bf16>();
  kernel.q = static_cast<const Bf16*>(params.q.data) + first_row * params.q.row_stride;
  kernel.q_stride = params.q.row_stride;
  kernel.o = static_cast<Bf16*>(params.o.data) + first_row * params.o.row_stride;
  kernel.o_stride = params.o.row_stride;
  kernel.rows = rows;
  kernel.first_token = sequence.first_token;
  kernel.sums = latent_.sums.as<float>();
  kernel.softmax = latent_.softmax.as<float2>();
  for (const LatentChunk& chunk : chunks) {
    kernel.chunk_begin = chunk.begin;
    kernel.chunk_end = chunk.end;
    kernel.first_panel = chunk.first_panel;
    if (!hopper) kernel.latents = LatentRowOf(sequence, chunk.begin, shape.LatentWidth());
    if (Status s = ExpandLatents(sequence, chunk.begin, chunk.end, projection, hopper); !s.ok()) {
      return s;
    }
    Status launched = hopper ? LaunchLatentHopper(kernel, latent_.rope.as<Bf16>(), stream)
                             : FromCuda(LaunchLatentChunk(kernel, stream), "latent prefill");
    if (!launched.ok()) return launched;
  }
  return {};
}

}  // namespace deltafill::kernels::cuda
