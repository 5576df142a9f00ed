// How the parts of a sum meet: part q of a cluster finishes its share of the features from what all
// parts sent to its shared memory, and writes them eight neighbours a thread.
#ifndef DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_FINISH_CUH_
#define DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_FINISH_CUH_

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/short_conv_step.cuh"
#include "kernels/cuda/step_product_hopper.h"
#include "kernels/cuda/step_product_plan.h"
#include "kernels/cuda/swiglu.cuh"

namespace deltafill::kernels::cuda {

// A group: the features of a warp and instruction. Finished sums lie [group][row][feature], rows so
// far apart that the lanes of a warp meet no bank twice.
inline constexpr int kSumFeatures = 16, kSumStride = 20, kSumGroupsLog2 = 3;
static_assert(kSumFeatures << kSumGroupsLog2 == kStepCtaFeatures);

// Which group the features of a warp and its instruction `i` are: gates and their ups are
// neighbours.
struct SumGroups {
  bool swiglu;
  int warp;
  __device__ __forceinline__ int Of(int i) const { return swiglu ? warp * 2 + i : i * 4 + warp; }
};

// Sends a lane's sums, four floats of a group and 8 rows each, to the CTAs that finish them:
// [part][group of the owner][8 rows][lane]. `arrived`, at the same place in each CTA, counts bytes.
template <int rows>
__device__ __forceinline__ void SendSums(float4* sums, const float (&d)[2][rows / 2],
                                         const SumGroups& groups, int first_rank, int part,
                                         int parts_log2, uint64_t* arrived) {
  const int own_log2 = kSumGroupsLog2 - parts_log2, lane = threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int group = groups.Of(i), rank = first_rank + (group >> own_log2);
    const int slot = (part << own_log2) + (group & ((1 << own_log2) - 1));
    const uint32_t there =
        AddressInCluster(SharedAddress(sums + slot * (rows / 8) * 32 + lane), rank);
    const uint32_t barrier = AddressInCluster(SharedAddress(arrived), rank);
#pragma unroll
    for (int j = 0; j < rows / 8; ++j) {
      StoreInClusterAsync(there + j * 512, d[i][j * 4], d[i][j * 4 + 1], d[i][j * 4 + 2],
                          d[i][j * 4 + 3], barrier);
    }
  }
}

// A lane's four sums of a group and 8 rows: of two neighbouring rows, of a feature and the one 8
// further.
__device__ __forceinline__ void StageFour(float x, float y, float z, float w, int place, int lane,
                                          float* staged) {
  float* const at = staged + (place * 8 + (lane & 3) * 2) * kSumStride + (lane >> 2);
  at[0] = x;
  at[kSumStride] = y;
  at[8] = z;
  at[kSumStride + 8] = w;
}

// The whole sums of a CTA without other parts.
template <int rows>
__device__ __forceinline__ void StageSums(const float (&d)[2][rows / 2], const SumGroups& groups,
                                          float* staged) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < rows / 8; ++j) {
      StageFour(d[i][j * 4], d[i][j * 4 + 1], d[i][j * 4 + 2], d[i][j * 4 + 3],
                groups.Of(i) * (rows / 8) + j, threadIdx.x & 31, staged);
    }
  }
}

// The parts' sums are added one part after the other.
template <int rows>
__device__ __forceinline__ void AddParts(const float4* sums, int parts_log2, float* staged) {
  const int lane = threadIdx.x & 31, places = (rows / 8) << (kSumGroupsLog2 - parts_log2);
#pragma unroll 1
  for (int place = threadIdx.x >> 5; place < places; place += 4) {
    const float4* at = sums + place * 32 + lane;
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 2
    for (int part = 0; part < 1 << parts_log2; ++part, at += places * 32) {
      const float4 x = *at;
      total.x += x.x, total.y += x.y, total.z += x.z, total.w += x.w;
    }
    StageFour(total.x, total.y, total.z, total.w, place, lane, staged);
  }
}

// Up to 8 features of a row, where rows of y are not aligned or end.
static __device__ __noinline__ void StoreElements(const StepProduct& p, const float* staged,
                                                  int64_t at, int feature) {
  float* const wide = static_cast<float*>(p.y);
  __nv_bfloat16* const narrow = static_cast<__nv_bfloat16*>(p.y);
#pragma unroll 1
  for (int i = 0; i < 8 && feature + i < p.y_features(); ++i) {
    float start = p.bias != nullptr ? p.bias[feature + i] : 0.0f;
    if (p.accumulate) start += p.y_is_f32 ? wide[at + i] : __bfloat162float(narrow[at + i]);
    if (p.y_is_f32) {
      wide[at + i] = staged[i] + start;
    } else {
      narrow[at + i] = __float2bfloat16(staged[i] + start);
    }
  }
}

// Writes a CTA's share of a tile of features: vectors of 8, a row's one after the other.
template <int rows>
class SumOwner {
 public:
  __device__ __forceinline__ SumOwner(const StepProduct& p, const StepConvolution& convolution,
                                      int first_row, int x_rows, int tile_feature, int part,
                                      int parts_log2)
      : p_(p),
        convolution_(convolution),
        first_row_(first_row),
        row_log2_(kSumGroupsLog2 - parts_log2 + (p.swiglu ? 0 : 1)),
        vectors_(x_rows << row_log2_),
        first_feature_(tile_feature + (part << row_log2_) * 8) {
    const int element = p.y_is_f32 ? 4 : 2;
    vectorized_ = p.y_stride * element % 16 == 0 && reinterpret_cast<uintptr_t>(p.y) % 16 == 0;
  }

  // Tails, before the kernel in front has ended.
  __device__ __forceinline__ void PrefetchTails() const {
    if (p_.convolution == nullptr) return;
#pragma unroll 1
    for (int vector = threadIdx.x; vector < vectors_; vector += 128) {
      const float* const tail = convolution_.tails_in[RowOf(vector)];
      if (tail == nullptr || !IsConvolved(FeatureOf(vector))) continue;
      PrefetchToL2(tail + FeatureOf(vector) * kConvTailRows);
    }
  }

  // What else a thread's first vector starts from.
  __device__ __forceinline__ void Prefetch() const {
    const int vector = threadIdx.x, feature = FeatureOf(vector);
    if (vector >= vectors_ || feature >= p_.y_features()) return;
    if (IsConvolved(feature)) {
      const float* const tail = convolution_.tails_in[RowOf(vector)];
      if (tail != nullptr) PrefetchToL1(tail + feature * kConvTailRows);
      PrefetchToL1(convolution_.weight + feature * kConvKernelSize);
    } else if (p_.accumulate) {
      PrefetchToL1(static_cast<const uint8_t*>(p_.y) + PlaceOf(vector) * (p_.y_is_f32 ? 4 : 2));
    }
  }

  __device__ __forceinline__ void Store(const float* staged) const {
#pragma unroll 1
    for (int vector = threadIdx.x; vector < vectors_; vector += 128) {
      const int feature = FeatureOf(vector);
      if (feature >= p_.y_features()) continue;
      const float* const at = StagedAt(staged, vector);
      float x[8];
      if (IsConvolved(feature)) {
        ReadEight(at, x);
        Convolve(RowOf(vector), feature, x);
      } else if (p_.swiglu) {
        float ups[8];
        ReadEight(at, x);
        ReadEight(at + rows * kSumStride, ups);
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = SiluTimes(RoundToBf16(x[i]), RoundToBf16(ups[i]));
        Write(PlaceOf(vector), x);
      } else if (vectorized_ && feature + 8 <= p_.y_features()) {
        ReadEight(at, x);
        AddStart(vector, feature, x);
        Write(PlaceOf(vector), x);
      } else {
        StoreElements(p_, at, PlaceOf(vector), feature);
      }
    }
  }

 private:
  static __device__ __forceinline__ float RoundToBf16(float x) {
    return __bfloat162float(__float2bfloat16(x));
  }
  static __device__ __forceinline__ void ReadEight(const float* at, float (&x)[8]) {
    const float4 low = *reinterpret_cast<const float4*>(at);
    const float4 high = *reinterpret_cast<const float4*>(at + 4);
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
  }

  __device__ __forceinline__ int FeatureOf(int vector) const {
    return first_feature_ + (vector & ((1 << row_log2_) - 1)) * 8;
  }
  __device__ __forceinline__ int RowOf(int vector) const {
    return first_row_ + (vector >> row_log2_);
  }
  __device__ __forceinline__ int64_t PlaceOf(int vector) const {
    return RowOf(vector) * p_.y_stride + FeatureOf(vector);
  }
  __device__ __forceinline__ const float* StagedAt(const float* staged, int vector) const {
    const int piece = vector & ((1 << row_log2_) - 1), row = vector >> row_log2_;
    const int group = p_.swiglu ? piece & ~1 : piece >> 1;
    return staged + (group * rows + row) * kSumStride + (piece & 1) * 8;
  }

  __device__ __forceinline__ bool IsConvolved(int feature) const {
    return p_.convolution != nullptr && feature < convolution_.channels;
  }
  __device__ __forceinline__ void Convolve(int row, int feature, float (&x)[8]) const {
    float4 weight[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      weight[i] = reinterpret_cast<const float4*>(convolution_.weight)[feature + i];
      x[i] = RoundToBf16(x[i]);
    }
    const float* const tail_in = convolution_.tails_in[row];
    float* const tail_out = convolution_.tails_out[row];
    float tail[kTailFloats];
    LoadAlignedTail(tail_in == nullptr ? nullptr : tail_in + feature * kConvTailRows, tail);
    ConvolveStep(weight, tail, x);
    if (tail_out != nullptr) StoreAlignedTail(tail, tail_out + feature * kConvTailRows);
    *reinterpret_cast<uint4*>(convolution_.y + row * convolution_.y_stride + feature) = Pack8(x);
  }

  // The bias and y itself, added up before the sum.
  __device__ __forceinline__ void AddStart(int vector, int feature, float (&x)[8]) const {
    float start[8] = {};
    if (p_.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < 8; ++i) start[i] = p_.bias[feature + i];
    }
    if (p_.accumulate) {
      const int64_t at = PlaceOf(vector);
      if (p_.y_is_f32) {
        float y[8];
        ReadEight(static_cast<const float*>(p_.y) + at, y);
#pragma unroll
        for (int i = 0; i < 8; ++i) start[i] += y[i];
      } else {
        const uint4 y =
            *reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(p_.y) + at);
        const uint32_t pairs[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          start[2 * i] += LowBf16(pairs[i]);
          start[2 * i + 1] += HighBf16(pairs[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] += start[i];
  }

  __device__ __forceinline__ void Write(int64_t at, const float (&x)[8]) const {
    if (p_.y_is_f32) {
      float4* const y = reinterpret_cast<float4*>(static_cast<float*>(p_.y) + at);
      y[0] = make_float4(x[0], x[1], x[2], x[3]);
      y[1] = make_float4(x[4], x[5], x[6], x[7]);
    } else {
      *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(p_.y) + at) = Pack8(x);
    }
  }

  const StepProduct& p_;
  const StepConvolution& convolution_;
  const int first_row_, row_log2_;  // of a row's vectors
  const int vectors_, first_feature_;
  bool vectorized_;
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_FINISH_CUH_
