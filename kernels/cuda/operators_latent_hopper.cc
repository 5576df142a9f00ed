// Prefill attention of a lane where latent_hopper.h serves the shape.
#include <algorithm>
#include <vector>

#include "kernels/cuda/latent_hopper.h"
#include "kernels/cuda/latent_pages.h"
#include "kernels/cuda/latent_plan.h"
#include "kernels/cuda/latent_projection.h"
#include "kernels/cuda/log2e.h"
#include "kernels/cuda/operators.h"

namespace deltafill::kernels::cuda {
namespace {

using Bf16 = __nv_bfloat16;

Status ReserveChunks(const LatentShape& shape, int64_t chunk_rows, bool carries, int64_t rows,
                     LatentWorkspace* w, cudaStream_t stream) {
  const size_t keys = static_cast<size_t>(chunk_rows);
  const size_t columns = static_cast<size_t>(shape.heads * (shape.nope_dim + shape.value_dim));
  if (Status s = w->expanded.Reserve(keys * columns * sizeof(Bf16), stream); !s.ok()) return s;
  const size_t rope = static_cast<size_t>(shape.rope_dim);
  if (Status s = w->rope.Reserve(keys * rope * sizeof(Bf16), stream); !s.ok()) return s;
  if (!carries) return {};
  const size_t states = static_cast<size_t>(LatentHopperPaddedRows(rows) * shape.heads);
  const size_t values = static_cast<size_t>(shape.value_dim);
  if (Status s = w->sums.Reserve(states * values * sizeof(float), stream); !s.ok()) return s;
  return w->softmax.Reserve(states * sizeof(float2), stream);
}

}  // namespace

Status CudaOperators::ExpandLatents(const LatentSequence& sequence, int64_t begin, int64_t end,
                                    const CudaLatentProjection& projection) {
  const LatentShape& shape = projection.shape();
  const int64_t width = shape.LatentWidth(), columns = projection.weight().out_features();
  MatMulParams expand;
  for (int64_t token = begin; token < end; token += expand.rows) {
    expand.rows = std::min(kLatentPageTokens, end - token);
    Bf16* const latents = LatentRowOf(sequence, token, width);
    Bf16* const expanded = latent_.expanded.as<Bf16>() + (token - begin) * columns;
    if (Status s = Multiply(expand, projection.weight(), {latents, DType::kBF16, width},
                            {expanded, DType::kBF16, columns}, false);
        !s.ok()) {
      return s;
    }
    Bf16* const rope = latent_.rope.as<Bf16>() + (token - begin) * shape.rope_dim;
    if (Status s = CopyRows({latents + shape.rank, DType::kBF16, width},
                            {rope, DType::kBF16, shape.rope_dim}, expand.rows, shape.rope_dim);
        !s.ok()) {
      return s;
    }
  }
  return {};
}

Status CudaOperators::AttendSequenceHopper(const LatentPrefillParams& params, size_t index,
                                           const CudaLatentProjection& projection) {
  const LatentShape& shape = projection.shape();
  const LatentSequence& sequence = params.sequences[index];
  const int64_t first_row = params.offsets[index], rows = params.offsets[index + 1] - first_row;
  const std::vector<LatentChunk> chunks =
      PlanLatentChunks(sequence.first_token, rows, kLatentChunkTokens);
  if (Status s =
          ReserveChunks(shape, chunks[0].end, chunks.size() > 1, rows, &latent_, stream_.get());
      !s.ok()) {
    return s;
  }
  LatentHopperChunk kernel;
  kernel.shape = shape;
  kernel.scale_log2 = LatentScale(shape) * kLog2E;
  kernel.expanded = latent_.expanded.as<Bf16>();
  kernel.rope = latent_.rope.as<Bf16>();
  kernel.q = static_cast<const Bf16*>(params.q.data) + first_row * params.q.row_stride;
  kernel.q_stride = params.q.row_stride;
  kernel.o = static_cast<Bf16*>(params.o.data) + first_row * params.o.row_stride;
  kernel.o_stride = params.o.row_stride;
  kernel.rows = rows;
  kernel.first_token = sequence.first_token;
  kernel.sums = latent_.sums.as<float>();
  kernel.softmax = latent_.softmax.as<float2>();
  for (const LatentChunk& chunk : chunks) {
    if (Status s = ExpandLatents(sequence, chunk.begin, chunk.end, projection); !s.ok()) return s;
    kernel.chunk_begin = chunk.begin;
    kernel.chunk_end = chunk.end;
    kernel.first_panel = chunk.first_panel;
    if (Status s = LaunchLatentHopper(kernel, stream_.get()); !s.ok()) return s;
  }
  return {};
}

}  // namespace deltafill::kernels::cuda
