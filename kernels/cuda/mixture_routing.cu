#include "kernels/cuda/mixture_routing.h"

#include "kernels/cuda/mixture_plan.h"
#include "kernels/cuda/mma.cuh"

namespace deltafill::kernels::cuda {
namespace {

template <int per_lane>
constexpr int kChoosingThreads = per_lane > 8 ? 512 : 1024;  // by registers
constexpr int kPlacingThreads = kMixtureExpertsMax;
constexpr int kRowThreads = 128;

__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Ascends as scores do; a NaN is the largest, and 0 is below every score.
__device__ __forceinline__ uint32_t Ordered(float score) {
  if (isnan(score)) return ~0u;
  const uint32_t bits = __float_as_uint(score + 0.0f);  // one zero
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// A warp's choice for one row: lane k of the first top_k has the k-th best
// expert.
template <int per_lane>
__device__ __forceinline__ int ChooseRow(const MixtureRouting& p, const float* logits, int lane) {
  uint32_t keys[per_lane];
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    const int expert = i * 32 + lane;
    keys[i] = 0;
    if (expert >= p.shape.experts) continue;
    const float score = Sigmoid(logits[expert]);
    keys[i] = Ordered(p.correction_bias != nullptr ? score + p.correction_bias[expert] : score);
  }
  int chosen = 0;
  for (int k = 0; k < p.shape.top_k; ++k) {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < per_lane; ++i) largest = max(largest, keys[i]);
    largest = __reduce_max_sync(~0u, largest);
    uint32_t first = ~0u;
#pragma unroll
    for (int i = per_lane - 1; i >= 0; --i) {
      if (keys[i] == largest) first = static_cast<uint32_t>(i * 32 + lane);
    }
    first = __reduce_min_sync(~0u, first);
    if (lane == k) chosen = static_cast<int>(first);
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
      if (i * 32 + lane == static_cast<int>(first)) keys[i] = 0;
    }
  }
  return chosen;
}

// Writes a row's experts and weights in ascending order of expert.
__device__ __forceinline__ void WeighRow(const MixtureRouting& p, const float* logits, int64_t row,
                                         int lane, int chosen) {
  const int top_k = p.shape.top_k;
  float weight = 0.0f;
  if (lane < top_k) {
    weight = Sigmoid(logits[chosen]);
    if (p.shape.biased_weights && p.correction_bias != nullptr) weight += p.correction_bias[chosen];
  }
  int place = 0;
  for (int k = 0; k < top_k; ++k) place += __shfl_sync(~0u, chosen, k) < chosen;
  float sum = 0.0f;
  for (int k = 0; k < top_k; ++k) {
    const uint32_t owner = __ballot_sync(~0u, lane < top_k && place == k);
    sum += __shfl_sync(~0u, weight, __ffs(static_cast<int>(owner)) - 1);
  }
  if (lane >= top_k) return;
  const float divisor = p.shape.renormalize ? sum + 1e-20f : 1.0f;
  p.experts[row * top_k + place] = chosen;
  p.weights[row * top_k + place] = weight / divisor * p.shape.routed_scale;
}

// A CTA has 64 rows, a warp one at a time. masks: two words an expert, a bit a
// row that chose it.
template <int per_lane>
__global__ void __launch_bounds__(kChoosingThreads<per_lane>)
    ChooseKernel(const __grid_constant__ MixtureRouting p) {
  constexpr int kThreads = kChoosingThreads<per_lane>;
  __shared__ uint32_t masks[2][per_lane * 32];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int experts = p.shape.experts, top_k = p.shape.top_k;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kMixtureChoosingRows;
  const int rows = static_cast<int>(min(p.rows - first_row, int64_t{kMixtureChoosingRows}));
  for (int i = threadIdx.x; i < experts; i += kThreads) masks[0][i] = masks[1][i] = 0;
  __syncthreads();
  for (int row = warp; row < rows; row += kThreads / 32) {
    const float* const logits = p.logits + (first_row + row) * experts;
    const int chosen = ChooseRow<per_lane>(p, logits, lane);
    WeighRow(p, logits, first_row + row, lane, chosen);
    if (lane < top_k) atomicOr(&masks[row >> 5][chosen], 1u << (row & 31));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < experts; i += kThreads) {
    p.counts[static_cast<int64_t>(blockIdx.x) * experts + i] =
        __popc(masks[0][i]) + __popc(masks[1][i]);
  }
  for (int i = threadIdx.x; i < rows * top_k; i += kThreads) {
    const int row = i / top_k, expert = p.experts[first_row * top_k + i];
    const uint32_t below = (1u << (row & 31)) - 1;
    p.slots[first_row * top_k + i] =
        row < 32 ? __popc(masks[0][expert] & below)
                 : __popc(masks[0][expert]) + __popc(masks[1][expert] & below);
  }
}

// Sum over the threads before this one; `all` is that of all threads.
__device__ __forceinline__ int SumBefore(int value, int* warps, int* all) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int sum = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset <<= 1) {
    const int other = __shfl_up_sync(~0u, sum, offset);
    if (lane >= offset) sum += other;
  }
  __syncthreads();
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  int before = 0;
  *all = 0;
#pragma unroll 4
  for (int i = 0; i < kPlacingThreads / 32; ++i) {
    if (i < warp) before += warps[i];
    *all += warps[i];
  }
  return before + sum - value;
}

// One CTA, an expert a thread.
__global__ void __launch_bounds__(kPlacingThreads)
    PlaceKernel(const __grid_constant__ MixtureRouting p) {
  __shared__ int warps[kPlacingThreads / 32];
  constexpr int kBatch = 8;  // loads at a time
  const int expert = threadIdx.x, experts = p.shape.experts;
  const int groups = (p.rows + kMixtureChoosingRows - 1) / kMixtureChoosingRows;
  int count = 0;
  for (int first = 0; expert < experts && first < groups; first += kBatch) {
    int of_group[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      of_group[i] = first + i < groups ? p.counts[(first + i) * experts + expert] : 0;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i < groups) p.counts[(first + i) * experts + expert] = count;
      count += of_group[i];
    }
  }
  int choices = 0, tile_count = 0;
  const int begin = SumBefore(count, warps, &choices);
  const int tiles = (count + kTokenTileRows - 1) / kTokenTileRows;
  const int first_tile = SumBefore(tiles, warps, &tile_count);
  if (expert < experts) p.begin[expert] = begin;
  for (int i = 0; i < tiles; ++i) {
    const int done = i * kTokenTileRows;
    p.tiles[first_tile + i] = {expert, begin + done, min(count - done, kTokenTileRows), 0};
  }
  if (expert == 0) {
    p.work->tile_count = tile_count;
    p.work->tickets[0] = p.work->tickets[1] = 0;
  }
}

// A CTA a row.
__global__ void __launch_bounds__(kRowThreads)
    PackKernel(const __grid_constant__ MixtureRouting p) {
  __shared__ int32_t slots[kMixtureTopKMax];
  const int64_t row = blockIdx.x;
  const int top_k = p.shape.top_k, pieces = static_cast<int>(p.shape.hidden / 8);
  if (threadIdx.x < top_k) {
    const int64_t at = row * top_k + threadIdx.x;
    const int expert = p.experts[at];
    const int64_t group = row / kMixtureChoosingRows;
    slots[threadIdx.x] = p.begin[expert] + p.counts[group * p.shape.experts + expert] + p.slots[at];
    p.slots[at] = slots[threadIdx.x];
  }
  __syncthreads();
  const uint4* const from = reinterpret_cast<const uint4*>(p.x + row * p.x_stride);
  for (int i = threadIdx.x; i < pieces; i += kRowThreads) {
    const uint4 piece = from[i];
    for (int k = 0; k < top_k; ++k) {
      reinterpret_cast<uint4*>(p.packed)[static_cast<int64_t>(slots[k]) * pieces + i] = piece;
    }
  }
}

__device__ __forceinline__ void AddPair(float weight, uint32_t x, float (&sums)[2]) {
  sums[0] = fmaf(weight, LowBf16(x), sums[0]);
  sums[1] = fmaf(weight, HighBf16(x), sums[1]);
}

// A CTA a row.
__global__ void __launch_bounds__(kRowThreads)
    CombineKernel(const __grid_constant__ MixtureRouting p) {
  __shared__ int32_t slots[kMixtureTopKMax];
  __shared__ float weights[kMixtureTopKMax];
  const int64_t row = blockIdx.x;
  const int top_k = p.shape.top_k, pieces = static_cast<int>(p.shape.hidden / 8);
  if (threadIdx.x < top_k) {
    slots[threadIdx.x] = p.slots[row * top_k + threadIdx.x];
    weights[threadIdx.x] = p.weights[row * top_k + threadIdx.x];
  }
  __syncthreads();
  uint4* const to = reinterpret_cast<uint4*>(p.y + row * p.y_stride);
  for (int i = threadIdx.x; i < pieces; i += kRowThreads) {
    const uint4 y = to[i];
    float sums[4][2] = {{LowBf16(y.x), HighBf16(y.x)},
                        {LowBf16(y.y), HighBf16(y.y)},
                        {LowBf16(y.z), HighBf16(y.z)},
                        {LowBf16(y.w), HighBf16(y.w)}};
#pragma unroll 8
    for (int k = 0; k < top_k; ++k) {
      const int64_t slot = slots[k];
      const uint4 x = reinterpret_cast<const uint4*>(p.packed)[slot * pieces + i];
      AddPair(weights[k], x.x, sums[0]);
      AddPair(weights[k], x.y, sums[1]);
      AddPair(weights[k], x.z, sums[2]);
      AddPair(weights[k], x.w, sums[3]);
    }
    to[i] = make_uint4(PackBf16(sums[0][0], sums[0][1]), PackBf16(sums[1][0], sums[1][1]),
                       PackBf16(sums[2][0], sums[2][1]), PackBf16(sums[3][0], sums[3][1]));
  }
}

}  // namespace

cudaError_t LaunchChooseExperts(const MixtureRouting& routing, cudaStream_t stream) {
  const unsigned grid =
      static_cast<unsigned>((routing.rows + kMixtureChoosingRows - 1) / kMixtureChoosingRows);
  if (routing.shape.experts <= 64) {
    ChooseKernel<2><<<grid, kChoosingThreads<2>, 0, stream>>>(routing);
  } else if (routing.shape.experts <= 256) {
    ChooseKernel<8><<<grid, kChoosingThreads<8>, 0, stream>>>(routing);
  } else {
    constexpr int kPerLane = kMixtureExpertsMax / 32;
    ChooseKernel<kPerLane><<<grid, kChoosingThreads<kPerLane>, 0, stream>>>(routing);
  }
  return cudaGetLastError();
}

cudaError_t LaunchPlaceExperts(const MixtureRouting& routing, cudaStream_t stream) {
  PlaceKernel<<<1, kPlacingThreads, 0, stream>>>(routing);
  return cudaGetLastError();
}

cudaError_t LaunchPackRows(const MixtureRouting& routing, cudaStream_t stream) {
  PackKernel<<<static_cast<unsigned>(routing.rows), kRowThreads, 0, stream>>>(routing);
  return cudaGetLastError();
}

cudaError_t LaunchCombineRows(const MixtureRouting& routing, cudaStream_t stream) {
  CombineKernel<<<static_cast<unsigned>(routing.rows), kRowThreads, 0, stream>>>(routing);
  return cudaGetLastError();
}

}  // namespace deltafill::kernels::cuda
