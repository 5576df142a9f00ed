// Warp-level matrix instructions that every card from sm_80 on has.
#ifndef DELTAFILL_KERNELS_CUDA_MMA_CUH_
#define DELTAFILL_KERNELS_CUDA_MMA_CUH_

#include <cuda_bf16.h>

#include <cstdint>

namespace deltafill::kernels::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Where the tile at shared address `tile`, of rows of 128 bytes, has a row's 16 bytes `piece`: the
// 128-byte swizzle of the copy engine and of WGMMA.
__device__ __forceinline__ uint32_t SwizzledPiece(uint32_t tile, int row, int piece) {
  return tile + row * 128 + ((piece ^ (row & 7)) << 4);
}

__device__ __forceinline__ void LoadMatrix4(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void LoadMatrix4Transposed(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ uint32_t TransposeMatrix(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// d[16, 8] += a[16, 16] b[16, 8], bf16 operands.
__device__ __forceinline__ void MmaBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d[16, 8] += a[16, 8] b[8, 8], tf32 operands.
__device__ __forceinline__ void MmaTf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t ToTf32(float x) {
  uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

__device__ __forceinline__ float LowBf16(uint32_t x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float HighBf16(uint32_t x) { return __uint_as_float(x & 0xFFFF0000u); }

// Eight neighbours in 16 bytes.
__device__ __forceinline__ uint4 Pack8(const float (&x)[8]) {
  return make_uint4(PackBf16(x[0], x[1]), PackBf16(x[2], x[3]), PackBf16(x[4], x[5]),
                    PackBf16(x[6], x[7]));
}
__device__ __forceinline__ void Unpack8(const uint4& raw, float (&x)[8]) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = LowBf16(words[i]);
    x[2 * i + 1] = HighBf16(words[i]);
  }
}

__device__ __forceinline__ uint32_t MultiplyBf16(uint32_t x, uint32_t y) {
  const __nv_bfloat162 product = __hmul2(reinterpret_cast<const __nv_bfloat162&>(x),
                                         reinterpret_cast<const __nv_bfloat162&>(y));
  return reinterpret_cast<const uint32_t&>(product);
}

// Stores to global memory that the compiler knows not to overlap shared memory.
__device__ __forceinline__ void StoreGlobal(void* at, uint32_t x) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(x));
}
__device__ __forceinline__ void StoreGlobal(void* at, uint2 x) {
  asm volatile("st.global.v2.u32 [%0], {%1,%2};" ::"l"(at), "r"(x.x), "r"(x.y));
}
__device__ __forceinline__ void StoreGlobal(void* at, float4 x) {
  asm volatile("st.global.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(at), "f"(x.x), "f"(x.y), "f"(x.z),
               "f"(x.w));
}

// 16 bytes from global to shared memory, or zeros; complete after WaitCopies.
__device__ __forceinline__ void CopyAsync16(uint32_t to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(present ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int pending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// A barrier among `threads` threads of the CTA; ids 1 to 15.
__device__ __forceinline__ void GroupBarrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Counts as meeting at the barrier, without waiting there.
__device__ __forceinline__ void ArriveAtGroupBarrier(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Of the warp's lanes, the same in all.
__device__ __forceinline__ float SumWarp(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float Log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_MMA_CUH_
