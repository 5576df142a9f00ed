// Hopper's warpgroup products, mbarriers and bulk copies (sm_90a).
#ifndef DELTAFILL_KERNELS_CUDA_WGMMA_CUH_
#define DELTAFILL_KERNELS_CUDA_WGMMA_CUH_

#include <cstdint>

namespace deltafill::kernels::cuda {

// Of the thread, in its CTA; by way of a shuffle the compiler knows it to be the same in a warp.
__device__ __forceinline__ int WarpgroupIndex() {
  return __shfl_sync(~0u, static_cast<int>(threadIdx.x) >> 7, 0);
}

__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int pending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Keeps the compiler from moving accesses to registers that an asynchronous product owns.
template <int count>
__device__ __forceinline__ void Pin(float (&r)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int count>
__device__ __forceinline__ void Pin(uint32_t (&r)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

// Matrix descriptor of a tile in the 128-byte swizzle: 8 rows of 128 bytes are 1,024 bytes apart.
// `half_bytes` is the distance between column halves, read only where rows are summed over.
__device__ __forceinline__ uint64_t TileDescriptor(uint32_t address, uint32_t half_bytes) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) |
         static_cast<uint64_t>(half_bytes >> 4) << 16 | static_cast<uint64_t>(1024 >> 4) << 32 |
         uint64_t{1} << 62;
}
__device__ __forceinline__ uint64_t Advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

// d[64, 64] (+)= sign * a[64, 16] b[16, 64]; a in registers, b in shared memory. `sum_rows`: b's
// tile is stored [16 summed rows][64 columns], otherwise [64 columns][16 summed].
template <int sign, int sum_rows>
__device__ __forceinline__ void Wgmma64(float (&d)[32], const uint32_t* a, uint64_t b,
                                        bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
      "{%32,%33,%34,%35}, %36, p, %38, 1, %39;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)),
        "n"(sign), "n"(sum_rows));
}

__device__ __forceinline__ void StoreMatrix4(uint32_t address, const uint32_t (&x)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}
__device__ __forceinline__ void StoreMatrix4Transposed(uint32_t address, uint32_t a, uint32_t b,
                                                       uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// Shared memory barriers. Waits spin; nothing here traps, which would cost registers.
__device__ __forceinline__ void BarrierInit(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void BarrierArrive(uint32_t barrier) {
  asm volatile("{.reg .b64 t; mbarrier.arrive.shared::cta.b64 t, [%0];}" ::"r"(barrier) : "memory");
}
// Arrives once this thread's cp.async copies so far have landed.
__device__ __forceinline__ void BarrierArriveAfterCopies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void BarrierExpect(uint32_t barrier, int bytes) {
  asm volatile(
      "{.reg .b64 t; mbarrier.arrive.expect_tx.shared::cta.b64 t, [%0], %1;}" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}
__device__ __forceinline__ bool BarrierTry(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done;
}
__device__ __forceinline__ void BarrierWait(uint32_t barrier, uint32_t parity) {
  while (!BarrierTry(barrier, parity)) {
  }
}

// A place in a ring of stages, and the parity that its barriers have in this round.
template <int stages>
struct RingPlace {
  int index = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void Step() {
    if (++index == stages) {
      index = 0;
      parity ^= 1;
    }
  }
};

// Contiguous bytes from global to shared memory by the copy engine.
__device__ __forceinline__ void BulkCopy(uint32_t to, const void* from, int bytes,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// Orders ordinary accesses with those of the copy engine and the matrix unit.
__device__ __forceinline__ void FenceAsync() { asm volatile("fence.proxy.async;" ::: "memory"); }

__device__ __forceinline__ void FenceAsyncShared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int registers>
__device__ __forceinline__ void GrowRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void ShrinkRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// For polling: an acquiring load would empty the first-level cache at each try.
__device__ __forceinline__ uint32_t LoadRelaxed(const uint32_t* at) {
  uint32_t x;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
  return x;
}
__device__ __forceinline__ void StoreRelaxed(uint32_t* at, uint32_t x) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
}

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_WGMMA_CUH_
