#include "kernels/cuda/latent_hopper.h"

#include "kernels/cuda/runtime.h"

namespace deltafill::kernels::cuda {
namespace {

Status MakeMap(const void* start, int64_t columns, int64_t stride, int64_t rows, TensorMap* out) {
  return MakeRowsMap({start, rows, columns, stride, kLatentHopperRows}, out);
}

}  // namespace

bool ServesLatentHopper(const LatentShape& shape, int major, int minor) {
  return major == 9 && minor == 0 && shape.nope_dim == 128 && shape.rope_dim == 64 &&
         shape.value_dim == 128;
}

Status LaunchLatentHopper(const LatentChunkParams& chunk, const __nv_bfloat16* rope,
                          cudaStream_t stream) {
  LatentHopperParams params;
  params.chunk = chunk;
  const int64_t keys = chunk.chunk_end - chunk.chunk_begin;
  const int64_t width = int64_t{chunk.shape.heads} * (chunk.shape.nope_dim + chunk.shape.value_dim);
  const int64_t rope_dim = chunk.shape.rope_dim;
  if (Status s = MakeMap(chunk.q, chunk.shape.QueryWidth(), chunk.q_stride, chunk.rows, &params.q);
      !s.ok()) {
    return s;
  }
  if (Status s = MakeMap(chunk.expanded, width, width, keys, &params.expanded); !s.ok()) return s;
  if (Status s = MakeMap(rope, rope_dim, rope_dim, keys, &params.rope); !s.ok()) return s;
  return FromCuda(LaunchLatentHopperKernel(params, stream), "latent prefill");
}

}  // namespace deltafill::kernels::cuda
