#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/product_probe.h"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// splitmix64: an index's own random bits.
__device__ __forceinline__ uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

__global__ void FillKernel(__nv_bfloat16* x, int64_t elements, uint64_t seed, float limit) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += stride) {
    const float unit =
        static_cast<float>(Mix(Mix(seed) + static_cast<uint64_t>(i)) >> 40) * 0x1p-23f;
    x[i] = __float2bfloat16(limit * (unit - 1.0f));
  }
}

template <typename Word>
__global__ void NegateKernel(const Word* from, Word* to, int64_t words) {
  constexpr Word kSign = static_cast<Word>(Word{1} << (sizeof(Word) * 8 - 1));
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < words;
       i += stride) {
    to[i] = from[i] ^ kSign;
  }
}

template <typename Word>
__global__ void CompareKernel(const Word* a, const Word* b, int64_t columns, int64_t stride,
                              unsigned long long* differences) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * stride;
  int different = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    different += a[first + i] != b[first + i];
  }
  if (different != 0) atomicAdd(differences, static_cast<unsigned long long>(different));
}

unsigned GridOf(int64_t elements) {
  return static_cast<unsigned>(std::clamp<int64_t>((elements + kThreads - 1) / kThreads, 1, 8192));
}

}  // namespace

cudaError_t FillUniform(void* x, int64_t elements, uint64_t seed, float limit,
                        cudaStream_t stream) {
  FillKernel<<<GridOf(elements), kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(x), elements,
                                                        seed, limit);
  return cudaGetLastError();
}

cudaError_t NegateWords(const void* from, void* to, int64_t words, int word_bytes,
                        cudaStream_t stream) {
  if (word_bytes == 2) {
    NegateKernel<<<GridOf(words), kThreads, 0, stream>>>(static_cast<const uint16_t*>(from),
                                                         static_cast<uint16_t*>(to), words);
  } else {
    NegateKernel<<<GridOf(words), kThreads, 0, stream>>>(static_cast<const uint32_t*>(from),
                                                         static_cast<uint32_t*>(to), words);
  }
  return cudaGetLastError();
}

cudaError_t CountDifferences(const void* a, const void* b, int64_t rows, int64_t columns,
                             int64_t stride, int word_bytes, unsigned long long* differences,
                             cudaStream_t stream) {
  const unsigned grid = static_cast<unsigned>(rows);
  if (word_bytes == 2) {
    CompareKernel<<<grid, kThreads, 0, stream>>>(static_cast<const uint16_t*>(a),
                                                 static_cast<const uint16_t*>(b), columns, stride,
                                                 differences);
  } else {
    CompareKernel<<<grid, kThreads, 0, stream>>>(static_cast<const uint32_t*>(a),
                                                 static_cast<const uint32_t*>(b), columns, stride,
                                                 differences);
  }
  return cudaGetLastError();
}

}  // namespace deltafill::kernels::cuda
