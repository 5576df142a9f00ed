// What both kernels of decoding's products share. A warp multiplies all rows of x, 16 at a time, by
// its features, rows of the weight, 8 at a time: the weight goes from memory to the registers of
// the matrix unit without a stop. A launch lasts some 10,000 cycles and a warp issues one of its
// instructions about every seventh, so what is not a load or a product is kept short.
#ifndef DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_CUH_
#define DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_CUH_

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/step_kernels.h"

namespace deltafill::kernels::cuda {

inline constexpr int kStepTileFeatures = 8, kStepTileRows = 16;
// Columns whose weights are on their way at once as one half of a chunk, 32 for two products.
inline constexpr int kStepHalf = kStepChunk / 2, kHalfSteps = kStepHalf / 32;
// Rows of a chunk of x lie 64 bytes off a multiple of 128 apart: reads of 16 bytes meet no bank
// twice.
inline constexpr int kStepRowBytes = kStepChunk * 2 + 64;

// A lane's weights of one half of a chunk, of `tiles` times 8 features: eight neighbouring columns
// of feature `lane / 4` a step.
template <int tiles>
struct HalfWeights {
  uint4 x[kHalfSteps][tiles];
};

__device__ __forceinline__ uint4 LoadWeight(const uint8_t* at, bool present) {
  uint4 x = make_uint4(0, 0, 0, 0);
  if (present) {
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(at));
  }
  return x;
}

// Reads the weights of a warp's features, a chunk after the other.
template <int tiles>
class WeightReader {
 public:
  __device__ __forceinline__ WeightReader(const StepProduct& p, int first_feature,
                                          int first_column) {
    const int lane = threadIdx.x & 31, in = static_cast<int>(p.in_features);
    at_ = reinterpret_cast<const uint8_t*>(p.w + static_cast<int64_t>(first_feature) * in +
                                           first_column + (lane & 3) * 8);
    columns_left_ = in - first_column - (lane & 3) * 8;
    // Features past the end are read at the last one and never written.
    const int last = static_cast<int>(p.out_features) - first_feature - 1;
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
      offsets_[i] = min((lane >> 2) + i * kStepTileFeatures, last) * in * 2;
    }
  }

  __device__ __forceinline__ void Load(int half, HalfWeights<tiles>& w) const {
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
      const uint8_t* const at = at_ + offsets_[i] + half * kStepHalf * 2;
#pragma unroll
      for (int s = 0; s < kHalfSteps; ++s) {
        w.x[s][i] = LoadWeight(at + s * 64, half * kStepHalf + s * 32 < columns_left_);
      }
    }
  }

  // Asks for the chunk after the one at hand, 128 bytes a line, into L2.
  __device__ __forceinline__ void PrefetchNextChunk() const {
    const int lane = threadIdx.x & 31;
    const int first = kStepChunk - (lane & 3) * 8 + (lane & 3) * 64;
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
      if (columns_left_ > first) PrefetchToL2(at_ + offsets_[i] + first * 2);
    }
  }

  __device__ __forceinline__ void NextChunk() {
    at_ += kStepChunk * 2;
    columns_left_ -= kStepChunk;
  }

 private:
  const uint8_t* at_;
  int offsets_[tiles];
  int columns_left_;
};

// Copies a warp's rows of chunks of x to shared memory: row `first`, and every `step`-th from there
// on. Columns past the last are zero; rows past the last are left as they are, and come to nothing.
template <int step>
class RowReader {
 public:
  __device__ __forceinline__ RowReader(const StepProduct& p, int rows, int first, int first_chunk)
      : stride_(p.x.stride),
        first_(first),
        rows_(rows),
        columns_left_(static_cast<int>(p.in_features) - first_chunk * kStepChunk -
                      static_cast<int>(threadIdx.x & 31) * 8),
        vectorized_(p.x.vectorized) {
    static_assert(kStepChunk == 32 * 8);
    at_ = p.x.rows + first * stride_ + first_chunk * kStepChunk + (threadIdx.x & 31) * 8;
  }

  // Asks for the next chunk; complete after WaitCopies and a barrier.
  __device__ __forceinline__ void Fill(uint8_t* stage) {
    const int lane = threadIdx.x & 31;
    const bool present = columns_left_ > 0;
    const __nv_bfloat16* from = present ? at_ : at_ - lane * 8;
    uint8_t* to = stage + first_ * kStepRowBytes + lane * 16;
    at_ += kStepChunk;
    columns_left_ -= kStepChunk;
    if (!vectorized_) return CopyElements(to, from, present);
#pragma unroll(step == 1 ? 1 : 4)
    for (int row = first_; row < rows_; row += step) {
      CopyAsync16(SharedAddress(to), from, present);
      from += step * stride_;
      to += step * kStepRowBytes;
    }
  }

 private:
  __device__ __noinline__ void CopyElements(uint8_t* to, const __nv_bfloat16* from,
                                            bool present) const {
    for (int row = first_; row < rows_; row += step) {
#pragma unroll 1
      for (int e = 0; e < 8; ++e) {
        reinterpret_cast<__nv_bfloat16*>(to)[e] = present ? from[e] : __nv_bfloat16();
      }
      from += step * stride_;
      to += step * kStepRowBytes;
    }
  }

  const __nv_bfloat16* at_;
  const int64_t stride_;
  const int first_, rows_;
  int columns_left_;
  const bool vectorized_;
};

// sums[i] += x w^T of step `s`: 16 rows of x, 8 features each. The columns of a product are dealt
// to lanes eight neighbours at a time, the same way for both operands: `low` has a lane's first
// four of them, of its row and of the row 8 further in turn, `high` the others.
template <int tiles>
__device__ __forceinline__ void MultiplyStep(const uint32_t (&low)[4], const uint32_t (&high)[4],
                                             const HalfWeights<tiles>& w, int s,
                                             float (&sums)[tiles][4]) {
#pragma unroll
  for (int i = 0; i < tiles; ++i) MmaBf16(sums[i], low, w.x[s][i].x, w.x[s][i].y);
#pragma unroll
  for (int i = 0; i < tiles; ++i) MmaBf16(sums[i], high, w.x[s][i].z, w.x[s][i].w);
}

// A lane's four elements of 16 rows of x and 8 features: two neighbouring features of a row, and of
// the row 8 further.
class OutputLane {
 public:
  __device__ __forceinline__ OutputLane(const StepProduct& p, int rows, int tile_feature,
                                        int tile_row)
      : p_(p) {
    feature_ = tile_feature + static_cast<int>(threadIdx.x & 3) * 2;
    const int row = tile_row + (static_cast<int>(threadIdx.x & 31) >> 2);
    at_ = row * p.y_stride + feature_;
    const int features = static_cast<int>(p.out_features);
    present_[0] = feature_ < features && row < rows;
    present_[1] = feature_ + 1 < features && row < rows;
    present_[2] = feature_ < features && row + 8 < rows;
    present_[3] = feature_ + 1 < features && row + 8 < rows;
  }

  // What sums are added to: the bias, y itself.
  __device__ __forceinline__ void LoadStart(float (&start)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      start[i] = p_.bias != nullptr && present_[i] ? p_.bias[feature_ + (i & 1)] : 0.0f;
    }
    if (!p_.accumulate) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!present_[i]) continue;
      start[i] += p_.y_is_f32 ? static_cast<const float*>(p_.y)[At(i)]
                              : __bfloat162float(static_cast<const __nv_bfloat16*>(p_.y)[At(i)]);
    }
  }

  __device__ __forceinline__ void Store(const float (&x)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!present_[i]) continue;
      if (p_.y_is_f32) {
        static_cast<float*>(p_.y)[At(i)] = x[i];
      } else {
        static_cast<__nv_bfloat16*>(p_.y)[At(i)] = __float2bfloat16(x[i]);
      }
    }
  }

 private:
  __device__ __forceinline__ int64_t At(int i) const {
    return at_ + (i & 1) + (i >= 2 ? 8 * p_.y_stride : 0);
  }

  const StepProduct& p_;
  int feature_;
  int64_t at_;
  bool present_[4];
};

// The parts' sums of `items` tiles, [part, item, lane], the items' shares `parts` apart in order:
// added one part after the other, and written. Item i has features from
// `first_feature` + i / row_tiles * 8 on, and tile i % row_tiles of the rows.
template <int row_tiles, int warps>
__device__ __forceinline__ void AddParts(const StepProduct& p, int rows, int first_feature,
                                         int items, int parts, const float (&first_start)[4],
                                         const float4* sums) {
  const int warp = threadIdx.x >> 5;
#pragma unroll 1
  for (int item = warp; item < items; item += warps) {
    const OutputLane lane(p, rows, first_feature + item / row_tiles * kStepTileFeatures,
                          item % row_tiles * kStepTileRows);
    float start[4], total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < 4; ++i) start[i] = first_start[i];
    if (item != warp) lane.LoadStart(start);
    const float4* at = sums + item * 32 + (threadIdx.x & 31);
#pragma unroll 2
    for (int part = 0; part < parts; ++part, at += items * 32) {
      const float4 x = *at;
      total[0] += x.x, total[1] += x.y, total[2] += x.z, total[3] += x.w;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) total[i] += start[i];
    lane.Store(total);
  }
}

// What AddParts adds its first item's sums to: asked for while the sums are still on their way.
template <int row_tiles>
__device__ __forceinline__ void LoadFirstStart(const StepProduct& p, int rows, int first_feature,
                                               int items, float (&start)[4]) {
  const int item = threadIdx.x >> 5;
  if (item >= items) return;
  OutputLane(p, rows, first_feature + item / row_tiles * kStepTileFeatures,
             item % row_tiles * kStepTileRows)
      .LoadStart(start);
}

// The product that a CTA works for, and the CTA's number in it.
__device__ __forceinline__ const PlannedProduct& ProductOfCta(const StepKernelParams& p, int* cta) {
  int index = 0;
#pragma unroll
  for (int i = 1; i < kStepProductsMax; ++i) {
    if (i < p.count && static_cast<int>(blockIdx.x) >= p.products[i].first_cta) index = i;
  }
  *cta = static_cast<int>(blockIdx.x) - p.products[index].first_cta;
  return p.products[index];
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_CUH_
