// One decoding step in the absorbed form: W_k goes into the query, W_v is applied to the average,
// and in between a head's keys and values are the latents themselves.
#include "kernels/cuda/latent.h"
#include "kernels/cuda/mma.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kHeads = 8;  // of a CTA that walks a part, one a warp
constexpr int kTile = 32;  // keys in shared memory at a time, one a lane in the softmax
constexpr int kRankLane = kLatentStepRankMax / 32;  // columns of the average a lane has, at most
constexpr int kThreads = 256;

__device__ __forceinline__ float SumWarp(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

// queries = scale (q W_k, q_rope): a CTA a head of a sequence, a thread some columns.
__global__ void __launch_bounds__(kThreads)
    AbsorbKernel(const __grid_constant__ LatentStepKernelParams p) {
  const int head = blockIdx.x, sequence = blockIdx.y, rank = p.shape.rank;
  const int nope = p.shape.nope_dim, rope = p.shape.rope_dim, width = rank + rope;
  const __nv_bfloat16* const q =
      p.q + (p.first_sequence + sequence) * p.q_stride + static_cast<int64_t>(head) * (nope + rope);
  const __nv_bfloat16* const w =
      p.kv_b + static_cast<int64_t>(head) * (nope + p.shape.value_dim) * rank;
  float* const to = p.queries + (static_cast<int64_t>(sequence) * p.shape.heads + head) * width;
  for (int column = threadIdx.x; column < rank; column += kThreads) {
    float sum = 0.0f;
    for (int i = 0; i < nope; ++i) {
      const float weight = __bfloat162float(w[static_cast<int64_t>(i) * rank + column]);
      sum = fmaf(__bfloat162float(q[i]), weight, sum);
    }
    to[column] = sum * p.scale_log2;
  }
  for (int i = threadIdx.x; i < rope; i += kThreads) {
    to[rank + i] = __bfloat162float(q[nope + i]) * p.scale_log2;
  }
}

struct PartShared {
  static constexpr int kWidthMax = kLatentStepRankMax + kLatentStepRopeMax;
  alignas(16) __nv_bfloat16 rows[kTile * kWidthMax];
  float queries[kHeads][kWidthMax];
};

// One part for eight heads. A lane has every 32nd column of its warp's head.
__global__ void __launch_bounds__(kHeads * 32)
    PartKernel(const __grid_constant__ LatentStepKernelParams p) {
  extern __shared__ __align__(16) uint8_t shared_bytes[];
  PartShared& s = *reinterpret_cast<PartShared*>(shared_bytes);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int head = blockIdx.y * kHeads + warp;
  const int rank = p.shape.rank, width = rank + p.shape.rope_dim;
  const LatentPart part = p.parts[blockIdx.x];
  const bool present = head < p.shape.heads;
  if (present) {
    const float* const query =
        p.queries +
        (static_cast<int64_t>(part.sequence - p.first_sequence) * p.shape.heads + head) * width;
    for (int i = lane; i < width; i += 32) s.queries[warp][i] = query[i];
  }
  float average[kRankLane] = {};
  float largest = -INFINITY, total = 0.0f;
  for (int first = 0; first < part.tokens; first += kTile) {
    const int keys = min(kTile, part.tokens - first);
    __syncthreads();
    const uint4* const from =
        reinterpret_cast<const uint4*>(part.latents + static_cast<int64_t>(first) * width);
    for (int i = threadIdx.x; i < keys * width / 8; i += kHeads * 32) {
      reinterpret_cast<uint4*>(s.rows)[i] = from[i];
    }
    __syncthreads();
    if (!present) continue;
    float score = -INFINITY;  // of key `lane`
    for (int key = 0; key < keys; ++key) {
      float sum = 0.0f;
      for (int i = lane; i < width; i += 32) {
        sum = fmaf(s.queries[warp][i], __bfloat162float(s.rows[key * width + i]), sum);
      }
      sum = SumWarp(sum);
      if (lane == key) score = sum;
    }
    float high = score;
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
      high = fmaxf(high, __shfl_xor_sync(~0u, high, offset));
    }
    high = fmaxf(high, largest);
    const float rescale = Exp2(largest - high), weight = Exp2(score - high);
    total = fmaf(total, rescale, SumWarp(weight));
    largest = high;
#pragma unroll
    for (int i = 0; i < kRankLane; ++i) average[i] *= rescale;
    for (int key = 0; key < keys; ++key) {
      const float of_key = __shfl_sync(~0u, weight, key);
#pragma unroll
      for (int i = 0; i < kRankLane; ++i) {
        const int column = i * 32 + lane;
        if (column >= rank) break;
        average[i] = fmaf(of_key, __bfloat162float(s.rows[key * width + column]), average[i]);
      }
    }
  }
  if (!present) return;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * p.shape.heads + head;
  if (lane == 0) p.softmax[at] = make_float2(largest, total);
#pragma unroll
  for (int i = 0; i < kRankLane; ++i) {
    const int column = i * 32 + lane;
    if (column < rank) p.averages[at * rank + column] = average[i];
  }
}

// Parts of a sequence from the first on, then W_v: a CTA a head of a sequence.
__global__ void __launch_bounds__(kThreads)
    MergeKernel(const __grid_constant__ LatentStepKernelParams p) {
  __shared__ float average[kLatentStepRankMax];
  const int head = blockIdx.x, sequence = blockIdx.y, rank = p.shape.rank;
  const int begin = p.part_begin[sequence], end = p.part_begin[sequence + 1];
  float largest = -INFINITY, total = 0.0f;
  float sums[(kLatentStepRankMax + kThreads - 1) / kThreads] = {};
  for (int part = begin; part < end; ++part) {
    const int64_t at = static_cast<int64_t>(part) * p.shape.heads + head;
    const float2 softmax = p.softmax[at];
    const float high = fmaxf(largest, softmax.x);
    const float before = Exp2(largest - high), added = Exp2(softmax.x - high);
    total = fmaf(softmax.y, added, total * before);
    largest = high;
    for (int i = 0, column = threadIdx.x; column < rank; ++i, column += kThreads) {
      sums[i] = fmaf(p.averages[at * rank + column], added, sums[i] * before);
    }
  }
  for (int i = 0, column = threadIdx.x; column < rank; ++i, column += kThreads) {
    average[column] = sums[i] / total;
  }
  __syncthreads();
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int values = p.shape.value_dim, nope = p.shape.nope_dim;
  const __nv_bfloat16* const w =
      p.kv_b + (static_cast<int64_t>(head) * (nope + values) + nope) * rank;
  __nv_bfloat16* const o =
      p.o + (p.first_sequence + sequence) * p.o_stride + static_cast<int64_t>(head) * values;
  for (int value = warp; value < values; value += kThreads / 32) {
    float sum = 0.0f;
    for (int i = lane; i < rank; i += 32) {
      sum = fmaf(average[i], __bfloat162float(w[static_cast<int64_t>(value) * rank + i]), sum);
    }
    sum = SumWarp(sum);
    if (lane == 0) o[value] = __float2bfloat16(sum);
  }
}

}  // namespace

cudaError_t LaunchLatentStep(const LatentStepKernelParams& params, cudaStream_t stream) {
  if (params.sequences == 0) return cudaSuccess;
  const unsigned heads = static_cast<unsigned>(params.shape.heads);
  const dim3 by_head(heads, static_cast<unsigned>(params.sequences));
  AbsorbKernel<<<by_head, kThreads, 0, stream>>>(params);
  const cudaError_t error = cudaFuncSetAttribute(
      PartKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(PartShared));
  if (error != cudaSuccess) return error;
  const dim3 by_part(static_cast<unsigned>(params.part_count), (heads + kHeads - 1) / kHeads);
  PartKernel<<<by_part, kHeads * 32, sizeof(PartShared), stream>>>(params);
  MergeKernel<<<by_head, kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace deltafill::kernels::cuda
