// Pieces of the portable kernel of decoding's products. A warp multiplies all rows of x by its
// features, rows of the weight, 8 at a time: the weight goes from memory to the registers of the
// matrix unit without a stop. A launch lasts some 10,000 cycles and a warp issues one of its
// instructions about every seventh, so what is not a load or a product is kept short.
#ifndef DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_PORTABLE_CUH_
#define DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_PORTABLE_CUH_

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/step_product_cta.cuh"
#include "kernels/cuda/step_product_portable.h"

namespace deltafill::kernels::cuda {

inline constexpr int kStepTileFeatures = 8;
inline constexpr int kStepWarps = 8, kWarpTiles = 2;  // of a CTA; of features, a warp has
// Columns whose weights are on their way at once as one half of a chunk, 32 for two products.
inline constexpr int kStepHalf = kStepChunk / 2, kHalfSteps = kStepHalf / 32;
// Rows of a chunk of x lie 64 bytes off a multiple of 128 apart: reads of 16 bytes meet no bank
// twice.
inline constexpr int kStepRowBytes = kStepChunk * 2 + 64;

// A lane's weights of one half of a chunk, of its features: eight neighbouring columns
// of feature `lane / 4` a step.
struct HalfWeights {
  uint4 x[kHalfSteps][kWarpTiles];
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
    for (int i = 0; i < kWarpTiles; ++i) {
      offsets_[i] = min((lane >> 2) + i * kStepTileFeatures, last) * in * 2;
    }
  }

  __device__ __forceinline__ void Load(int half, HalfWeights& w) const {
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
      const uint8_t* const at = at_ + offsets_[i] + half * kStepHalf * 2;
#pragma unroll
      for (int s = 0; s < kHalfSteps; ++s) {
        w.x[s][i] = LoadWeight(at + s * 64, half * kStepHalf + s * 32 < columns_left_);
      }
    }
  }

  __device__ __forceinline__ void NextChunk() {
    at_ += kStepChunk * 2;
    columns_left_ -= kStepChunk;
  }

 private:
  const uint8_t* at_;
  int offsets_[kWarpTiles];
  int columns_left_;
};

// Copies chunks of x to a warp's shared memory. Columns past the last are zero; rows past the last
// are left as they are, and come to nothing.
class RowReader {
 public:
  __device__ __forceinline__ RowReader(const StepProduct& p, int rows, int first_chunk)
      : stride_(p.x.stride),
        rows_(rows),
        columns_left_(static_cast<int>(p.in_features) - first_chunk * kStepChunk -
                      static_cast<int>(threadIdx.x & 31) * 8),
        vectorized_(p.x.vectorized) {
    static_assert(kStepChunk == 32 * 8);
    at_ = p.x.rows + first_chunk * kStepChunk + (threadIdx.x & 31) * 8;
  }

  // Asks for the next chunk; complete after WaitCopies and a barrier.
  __device__ __forceinline__ void Fill(uint8_t* stage) {
    const int lane = threadIdx.x & 31;
    const bool present = columns_left_ > 0;
    const __nv_bfloat16* from = present ? at_ : at_ - lane * 8;
    uint8_t* to = stage + lane * 16;
    at_ += kStepChunk;
    columns_left_ -= kStepChunk;
    if (!vectorized_) return CopyElements(to, from, present);
#pragma unroll 1
    for (int row = 0; row < rows_; ++row) {
      CopyAsync16(SharedAddress(to), from, present);
      from += stride_;
      to += kStepRowBytes;
    }
  }

 private:
  __device__ __noinline__ void CopyElements(uint8_t* to, const __nv_bfloat16* from,
                                            bool present) const {
    for (int row = 0; row < rows_; ++row) {
#pragma unroll 1
      for (int e = 0; e < 8; ++e) {
        reinterpret_cast<__nv_bfloat16*>(to)[e] = present ? from[e] : __nv_bfloat16();
      }
      from += stride_;
      to += kStepRowBytes;
    }
  }

  const __nv_bfloat16* at_;
  const int64_t stride_;
  const int rows_;
  int columns_left_;
  const bool vectorized_;
};

// sums[i] += x w^T of step `s`: up to 8 rows of x (the tile's other 8 are zero), 8 features each.
// The columns of a product are dealt to lanes eight neighbours at a time, the same way for both
// operands: x's first two registers have a lane's first four of them, the others the rest.
__device__ __forceinline__ void MultiplyStep(const uint4& x, const HalfWeights& w, int s,
                                             float (&sums)[kWarpTiles][4]) {
#pragma unroll
  for (int i = 0; i < kWarpTiles; ++i) MmaBf16(sums[i], {x.x, 0, x.y, 0}, w.x[s][i].x, w.x[s][i].y);
#pragma unroll
  for (int i = 0; i < kWarpTiles; ++i) MmaBf16(sums[i], {x.z, 0, x.w, 0}, w.x[s][i].z, w.x[s][i].w);
}

// A lane's two neighbouring features of a row of a tile of 8 rows and 8 features.
class OutputLane {
 public:
  __device__ __forceinline__ OutputLane(const StepProduct& p, int rows, int tile_feature) : p_(p) {
    feature_ = tile_feature + static_cast<int>(threadIdx.x & 3) * 2;
    const int row = static_cast<int>(threadIdx.x & 31) >> 2;
    at_ = row * p.y_stride + feature_;
    const int features = static_cast<int>(p.out_features);
    present_[0] = feature_ < features && row < rows;
    present_[1] = feature_ + 1 < features && row < rows;
  }

  // What sums are added to: the bias, y itself.
  __device__ __forceinline__ void LoadStart(float (&start)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      start[i] = p_.bias != nullptr && present_[i] ? p_.bias[feature_ + i] : 0.0f;
      if (!p_.accumulate || !present_[i]) continue;
      start[i] += p_.y_is_f32 ? static_cast<const float*>(p_.y)[at_ + i]
                              : __bfloat162float(static_cast<const __nv_bfloat16*>(p_.y)[at_ + i]);
    }
  }

  __device__ __forceinline__ void Store(const float (&x)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!present_[i]) continue;
      if (p_.y_is_f32) {
        static_cast<float*>(p_.y)[at_ + i] = x[i];
      } else {
        static_cast<__nv_bfloat16*>(p_.y)[at_ + i] = __float2bfloat16(x[i]);
      }
    }
  }

 private:
  const StepProduct& p_;
  int feature_;
  int64_t at_;
  bool present_[2];
};

// The parts' sums of `tiles` tiles of features, [part][tile][lane]: added one part after the other,
// and written.
__device__ __forceinline__ void AddParts(const StepProduct& p, int rows, int first_feature,
                                         int tiles, int parts, const float (&first_start)[2],
                                         const float2* sums) {
  const int warp = threadIdx.x >> 5;
#pragma unroll 1
  for (int tile = warp; tile < tiles; tile += kStepWarps) {
    const OutputLane lane(p, rows, first_feature + tile * kStepTileFeatures);
    float start[2] = {first_start[0], first_start[1]}, total[2] = {0.0f, 0.0f};
    if (tile != warp) lane.LoadStart(start);
    const float2* at = sums + tile * 32 + (threadIdx.x & 31);
#pragma unroll 2
    for (int part = 0; part < parts; ++part, at += tiles * 32) {
      const float2 x = *at;
      total[0] += x.x, total[1] += x.y;
    }
    total[0] += start[0];
    total[1] += start[1];
    lane.Store(total);
  }
}

// What AddParts adds its first tile's sums to: asked for while the sums are still on their way.
__device__ __forceinline__ void LoadFirstStart(const StepProduct& p, int rows, int first_feature,
                                               int tiles, float (&start)[2]) {
  const int tile = threadIdx.x >> 5;
  if (tile >= tiles) return;
  OutputLane(p, rows, first_feature + tile * kStepTileFeatures).LoadStart(start);
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_STEP_PRODUCT_PORTABLE_CUH_
