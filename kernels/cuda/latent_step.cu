// One decoding step in the absorbed form: W_k goes into the query, W_v is applied to the average,
// and in between a head's keys and values are the latents themselves.
#include "kernels/cuda/latent.h"
#include "kernels/cuda/latent_step_part.cuh"
#include "kernels/cuda/mma.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kSequencesMax = 8;    // that share a reading of W_k or W_v
constexpr int kColumnThreads = 64;  // two columns of the rank each
constexpr int kProjectThreads = 256, kProjectValues = 32;

// queries = scale (q W_k, q_rope), for a head, 128 columns and some sequences.
template <int kSequences>
__global__ void __launch_bounds__(kColumnThreads)
    AbsorbKernel(const __grid_constant__ LatentStepKernelParams p) {
  __shared__ float q[kSequences][kLatentStepNopeMax];
  const int head = blockIdx.x, rank = p.shape.rank, width = rank + p.shape.rope_dim;
  const int nope = p.shape.nope_dim, rope = p.shape.rope_dim;
  const int first = blockIdx.z * kSequences, sequences = min(p.sequences - first, kSequences);
  const int column = blockIdx.y * kColumnThreads * 2 + threadIdx.x * 2;
  const auto query = [&](int i) {
    return p.q + (p.first_sequence + first + i) * p.q_stride +
           static_cast<int64_t>(head) * (nope + rope);
  };
  const auto absorbed = [&](int i) {
    return p.queries + (static_cast<int64_t>(first + i) * p.shape.heads + head) * width;
  };
  for (int i = 0; i < kSequences; ++i) {
    for (int j = threadIdx.x; j < nope; j += kColumnThreads) {
      q[i][j] = i < sequences ? __bfloat162float(query(i)[j]) : 0.0f;
    }
    if (blockIdx.y > 0 || i >= sequences) continue;
    for (int j = threadIdx.x; j < rope; j += kColumnThreads) {
      absorbed(i)[rank + j] = __float2bfloat16(__bfloat162float(query(i)[nope + j]) * p.scale_log2);
    }
  }
  __syncthreads();
  if (column >= rank) return;
  const __nv_bfloat16* const w =
      p.kv_b + static_cast<int64_t>(head) * (nope + p.shape.value_dim) * rank + column;
  float sums[kSequences][2] = {};
#pragma unroll 16
  for (int i = 0; i < nope; ++i) {
    const uint32_t pair = *reinterpret_cast<const uint32_t*>(w + static_cast<int64_t>(i) * rank);
#pragma unroll
    for (int j = 0; j < kSequences; ++j) {
      sums[j][0] = fmaf(q[j][i], LowBf16(pair), sums[j][0]);
      sums[j][1] = fmaf(q[j][i], HighBf16(pair), sums[j][1]);
    }
  }
#pragma unroll
  for (int j = 0; j < kSequences; ++j) {
    if (j >= sequences) break;
    *reinterpret_cast<uint32_t*>(absorbed(j) + column) =
        PackBf16(sums[j][0] * p.scale_log2, sums[j][1] * p.scale_log2);
  }
}

template <int head_tiles, int buffers, int fixed_steps>
__global__ void __launch_bounds__(kPartThreads)
    PartKernel(const __grid_constant__ LatentStepKernelParams p) {
  using Shared = PartShared<head_tiles, buffers>;
  extern __shared__ __align__(16) uint8_t shared_bytes[];
  Shared& s = *reinterpret_cast<Shared*>(shared_bytes);
  const int rank = p.shape.rank, width = rank + p.shape.rope_dim;
  const int first_head = blockIdx.y * Shared::kHeads;
  const int heads = min(p.shape.heads - first_head, Shared::kHeads);
  const LatentPart part = p.parts[blockIdx.x];
  const int64_t sequence = part.sequence - p.first_sequence;
  LoadPartRows(p.queries + (sequence * p.shape.heads + first_head) * width, heads, Shared::kHeads,
               width, s.queries);
  const auto load = [&](int tile) {
    const int first = tile * kPartKeys;
    LoadPartRows(part.latents + static_cast<int64_t>(first) * width,
                 min(part.tokens - first, kPartKeys), kPartKeys, width, s.keys[tile % buffers]);
  };
  load(0);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  PartWarp<head_tiles, buffers, fixed_steps> of_warp{s, width, warp, lane};
  of_warp.Start();
  const int tiles = (part.tokens + kPartKeys - 1) / kPartKeys;
  for (int tile = 0; tile < tiles; ++tile) {
    WaitCopies<0>();
    __syncthreads();
    if (buffers > 1 && tile + 1 < tiles) load(tile + 1);
    const __nv_bfloat16* const keys = s.keys[tile % buffers];
    float scores[2][4], rescale[head_tiles][2];
    if (of_warp.HasScores()) {
      of_warp.Score(keys, part.tokens - tile * kPartKeys, scores);
      of_warp.ShareHighs(scores);
    }
    __syncthreads();
    of_warp.TakeHighs(rescale);
    if (of_warp.HasScores()) of_warp.ShareWeights(scores);
    __syncthreads();
    of_warp.AddKeys(keys, rescale);
    if (buffers > 1) continue;
    __syncthreads();
    if (tile + 1 < tiles) load(tile + 1);
  }
#pragma unroll
  for (int i = 0; i < 2 * head_tiles; ++i) {
    const int head = of_warp.Head(i >> 1, i & 1);
    if (head >= heads) continue;
    const int64_t at = static_cast<int64_t>(blockIdx.x) * p.shape.heads + first_head + head;
    if (warp == 0 && (lane & 3) == 0) {
      p.softmax[at] = make_float2(of_warp.largest[i >> 1][i & 1], of_warp.total[i >> 1][i & 1]);
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int column = warp * 64 + n * 8 + (lane & 3) * 2;
      if (column >= rank) break;
      *reinterpret_cast<float2*>(p.averages + at * rank + column) = make_float2(
          of_warp.sums[i >> 1][n][(i & 1) * 2], of_warp.sums[i >> 1][n][(i & 1) * 2 + 1]);
    }
  }
}

// Over the CTA; every thread gets it. The order is that of the number of threads alone.
template <typename Combine>
__device__ __forceinline__ float Reduce(float x, float (&of_threads)[kColumnThreads],
                                        const Combine& combine) {
  __syncthreads();
  of_threads[threadIdx.x] = x;
  __syncthreads();
  float all = of_threads[0];
  for (int i = 1; i < kColumnThreads; ++i) all = combine(all, of_threads[i]);
  return all;
}

// merged = the average over a sequence's parts, for a head and 128 columns.
__global__ void __launch_bounds__(kColumnThreads)
    MergeKernel(const __grid_constant__ LatentStepKernelParams p) {
  __shared__ float of_threads[kColumnThreads];
  const int head = blockIdx.x, sequence = blockIdx.z, heads = p.shape.heads, rank = p.shape.rank;
  const int begin = p.part_begin[sequence], end = p.part_begin[sequence + 1];
  const auto softmax = [&](int part) {
    return p.softmax[static_cast<int64_t>(part) * heads + head];
  };
  float largest = -INFINITY;
  for (int part = begin + threadIdx.x; part < end; part += kColumnThreads) {
    largest = fmaxf(largest, softmax(part).x);
  }
  largest = Reduce(largest, of_threads, [](float a, float b) { return fmaxf(a, b); });
  float total = 0.0f;
  for (int part = begin + threadIdx.x; part < end; part += kColumnThreads) {
    const float2 of_part = softmax(part);
    total = fmaf(of_part.y, Exp2(of_part.x - largest), total);
  }
  total = Reduce(total, of_threads, [](float a, float b) { return a + b; });
  const int column = blockIdx.y * kColumnThreads * 2 + threadIdx.x * 2;
  if (column >= rank) return;
  float low = 0.0f, high = 0.0f;
#pragma unroll 8
  for (int part = begin; part < end; ++part) {
    const float weight = Exp2(softmax(part).x - largest);
    const float2 sums = *reinterpret_cast<const float2*>(
        p.averages + (static_cast<int64_t>(part) * heads + head) * rank + column);
    low = fmaf(sums.x, weight, low);
    high = fmaf(sums.y, weight, high);
  }
  *reinterpret_cast<float2*>(p.merged + (static_cast<int64_t>(sequence) * heads + head) * rank +
                             column) = make_float2(low / total, high / total);
}

// o = W_v merged, for a head, 32 values and some sequences; a warp has every eighth value.
template <int kSequences>
__global__ void __launch_bounds__(kProjectThreads)
    ProjectKernel(const __grid_constant__ LatentStepKernelParams p) {
  __shared__ float merged[kSequences][kLatentStepRankMax];
  const int head = blockIdx.x, rank = p.shape.rank, values = p.shape.value_dim;
  const int first = blockIdx.z * kSequences, sequences = min(p.sequences - first, kSequences);
  for (int i = 0; i < kSequences; ++i) {
    for (int j = threadIdx.x; j < rank; j += kProjectThreads) {
      const int64_t at = static_cast<int64_t>(first + i) * p.shape.heads + head;
      merged[i][j] = i < sequences ? p.merged[at * rank + j] : 0.0f;
    }
  }
  __syncthreads();
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const __nv_bfloat16* const w =
      p.kv_b + (static_cast<int64_t>(head) * (p.shape.nope_dim + values) + p.shape.nope_dim) * rank;
  for (int i = warp; i < kProjectValues; i += kProjectThreads / 32) {
    const int value = blockIdx.y * kProjectValues + i;
    if (value >= values) break;
    float sums[kSequences] = {};
    for (int column = lane * 2; column < rank; column += 64) {
      const uint32_t pair =
          *reinterpret_cast<const uint32_t*>(w + static_cast<int64_t>(value) * rank + column);
#pragma unroll
      for (int j = 0; j < kSequences; ++j) {
        const float2 average = *reinterpret_cast<const float2*>(&merged[j][column]);
        sums[j] = fmaf(average.x, LowBf16(pair), sums[j]);
        sums[j] = fmaf(average.y, HighBf16(pair), sums[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < kSequences; ++j) {
      const float sum = SumWarp(sums[j]);
      if (j < sequences && lane == 0) {
        p.o[(p.first_sequence + first + j) * p.o_stride + static_cast<int64_t>(head) * values +
            value] = __float2bfloat16(sum);
      }
    }
  }
}

unsigned Ceil(int64_t value, int64_t by) { return static_cast<unsigned>((value + by - 1) / by); }

template <int head_tiles, int buffers, int fixed_steps>
cudaError_t LaunchParts(const LatentStepKernelParams& params, cudaStream_t stream) {
  using Shared = PartShared<head_tiles, buffers>;
  const auto kernel = PartKernel<head_tiles, buffers, fixed_steps>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(params.part_count),
                  Ceil(params.shape.heads, Shared::kHeads));
  kernel<<<grid, kPartThreads, sizeof(Shared), stream>>>(params);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchLatentStep(const LatentStepKernelParams& params, cudaStream_t stream) {
  if (params.sequences == 0) return cudaSuccess;
  const unsigned heads = static_cast<unsigned>(params.shape.heads);
  const unsigned columns = Ceil(params.shape.rank, 2 * kColumnThreads);
  const bool alone = params.sequences == 1;
  const unsigned groups = Ceil(params.sequences, kSequencesMax);
  const auto absorb = alone ? AbsorbKernel<1> : AbsorbKernel<kSequencesMax>;
  absorb<<<dim3(heads, columns, groups), kColumnThreads, 0, stream>>>(params);
  constexpr int kWidestSteps = (kLatentStepRankMax + kLatentStepRopeMax) / 16;
  const bool roomy = params.shared_bytes >= static_cast<int>(sizeof(PartShared<2, 2>));
  const bool widest = params.shape.LatentWidth() == kWidestSteps * 16;
  const cudaError_t error = !roomy   ? LaunchParts<1, 1, 0>(params, stream)
                            : widest ? LaunchParts<2, 2, kWidestSteps>(params, stream)
                                     : LaunchParts<2, 2, 0>(params, stream);
  if (error != cudaSuccess) return error;
  const unsigned sequences = static_cast<unsigned>(params.sequences);
  MergeKernel<<<dim3(heads, columns, sequences), kColumnThreads, 0, stream>>>(params);
  const unsigned values = Ceil(params.shape.value_dim, kProjectValues);
  const auto project = alone ? ProjectKernel<1> : ProjectKernel<kSequencesMax>;
  project<<<dim3(heads, values, groups), kProjectThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace deltafill::kernels::cuda
