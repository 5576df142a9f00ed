// Warpgroup products with both operands in shared memory: d[64, rows] (+)= a[64, 16] b[rows, 16]^T.
// One specialisation a number of rows; operands are tiles of TileDescriptor.
#ifndef DELTAFILL_KERNELS_CUDA_WGMMA_ROWS_CUH_
#define DELTAFILL_KERNELS_CUDA_WGMMA_ROWS_CUH_

#include <cstdint>

namespace deltafill::kernels::cuda {

// d's registers as operands, and their places in the instruction.
#define DELTAFILL_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define DELTAFILL_D16(i) \
  DELTAFILL_D4(i), DELTAFILL_D4(i + 4), DELTAFILL_D4(i + 8), DELTAFILL_D4(i + 12)

#define DELTAFILL_R0         \
  "%0,%1,%2,%3,%4,%5,%6,%7," \
  "%8,%9,%10,%11,%12,%13,%14,%15"

#define DELTAFILL_R16                \
  "%16,%17,%18,%19,%20,%21,%22,%23," \
  "%24,%25,%26,%27,%28,%29,%30,%31"

#define DELTAFILL_R32                \
  "%32,%33,%34,%35,%36,%37,%38,%39," \
  "%40,%41,%42,%43,%44,%45,%46,%47"

#define DELTAFILL_R48                \
  "%48,%49,%50,%51,%52,%53,%54,%55," \
  "%56,%57,%58,%59,%60,%61,%62,%63"

#define DELTAFILL_R64                \
  "%64,%65,%66,%67,%68,%69,%70,%71," \
  "%72,%73,%74,%75,%76,%77,%78,%79"

#define DELTAFILL_R80                \
  "%80,%81,%82,%83,%84,%85,%86,%87," \
  "%88,%89,%90,%91,%92,%93,%94,%95"

#define DELTAFILL_R96                    \
  "%96,%97,%98,%99,%100,%101,%102,%103," \
  "%104,%105,%106,%107,%108,%109,%110,%111"

#define DELTAFILL_R112                       \
  "%112,%113,%114,%115,%116,%117,%118,%119," \
  "%120,%121,%122,%123,%124,%125,%126,%127"

#define DELTAFILL_WGMMA(rows, a_place, b_place, accumulate_place, registers, ...)       \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" accumulate_place                    \
               ", 0;\n"                                                                 \
               "wgmma.mma_async.sync.aligned.m64n" rows "k16.f32.bf16.bf16 {" registers \
               "}, %" a_place ", %" b_place ", p, 1, 1, 0, 0;\n}\n"                     \
               : __VA_ARGS__                                                            \
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))

template <int rows>
struct WgmmaRows;

template <>
struct WgmmaRows<8> {
  static __device__ __forceinline__ void Multiply(float (&d)[4], uint64_t a, uint64_t b,
                                                  bool accumulate) {
    DELTAFILL_WGMMA("8", "4", "5", "6", "%0,%1,%2,%3", DELTAFILL_D4(0));
  }
};
template <>
struct WgmmaRows<16> {
  static __device__ __forceinline__ void Multiply(float (&d)[8], uint64_t a, uint64_t b,
                                                  bool accumulate) {
    DELTAFILL_WGMMA("16", "8", "9", "10", "%0,%1,%2,%3,%4,%5,%6,%7", DELTAFILL_D4(0),
                    DELTAFILL_D4(4));
  }
};
template <>
struct WgmmaRows<32> {
  static __device__ __forceinline__ void Multiply(float (&d)[16], uint64_t a, uint64_t b,
                                                  bool accumulate) {
    DELTAFILL_WGMMA("32", "16", "17", "18", DELTAFILL_R0, DELTAFILL_D16(0));
  }
};
template <>
struct WgmmaRows<64> {
  static __device__ __forceinline__ void Multiply(float (&d)[32], uint64_t a, uint64_t b,
                                                  bool accumulate) {
    DELTAFILL_WGMMA("64", "32", "33", "34", DELTAFILL_R0 "," DELTAFILL_R16, DELTAFILL_D16(0),
                    DELTAFILL_D16(16));
  }
};
template <>
struct WgmmaRows<96> {
  static __device__ __forceinline__ void Multiply(float (&d)[48], uint64_t a, uint64_t b,
                                                  bool accumulate) {
    DELTAFILL_WGMMA("96", "48", "49", "50", DELTAFILL_R0 "," DELTAFILL_R16 "," DELTAFILL_R32,
                    DELTAFILL_D16(0), DELTAFILL_D16(16), DELTAFILL_D16(32));
  }
};
template <>
struct WgmmaRows<128> {
  static __device__ __forceinline__ void Multiply(float (&d)[64], uint64_t a, uint64_t b,
                                                  bool accumulate) {
    DELTAFILL_WGMMA("128", "64", "65", "66",
                    DELTAFILL_R0 "," DELTAFILL_R16 "," DELTAFILL_R32 "," DELTAFILL_R48,
                    DELTAFILL_D16(0), DELTAFILL_D16(16), DELTAFILL_D16(32), DELTAFILL_D16(48));
  }
};
template <>
struct WgmmaRows<160> {
  static __device__ __forceinline__ void Multiply(float (&d)[80], uint64_t a, uint64_t b,
                                                  bool accumulate) {
    DELTAFILL_WGMMA("160", "80", "81", "82",
                    DELTAFILL_R0 "," DELTAFILL_R16 "," DELTAFILL_R32 "," DELTAFILL_R48
                                 "," DELTAFILL_R64,
                    DELTAFILL_D16(0), DELTAFILL_D16(16), DELTAFILL_D16(32), DELTAFILL_D16(48),
                    DELTAFILL_D16(64));
  }
};
template <>
struct WgmmaRows<176> {
  static __device__ __forceinline__ void Multiply(float (&d)[88], uint64_t a, uint64_t b,
                                                  bool accumulate) {
    DELTAFILL_WGMMA("176", "88", "89", "90",
                    DELTAFILL_R0 "," DELTAFILL_R16 "," DELTAFILL_R32 "," DELTAFILL_R48
                                 "," DELTAFILL_R64 ",%80,%81,%82,%83,%84,%85,%86,%87",
                    DELTAFILL_D16(0), DELTAFILL_D16(16), DELTAFILL_D16(32), DELTAFILL_D16(48),
                    DELTAFILL_D16(64), DELTAFILL_D4(80), DELTAFILL_D4(84));
  }
};
template <>
struct WgmmaRows<192> {
  static __device__ __forceinline__ void Multiply(float (&d)[96], uint64_t a, uint64_t b,
                                                  bool accumulate) {
    DELTAFILL_WGMMA("192", "96", "97", "98",
                    DELTAFILL_R0 "," DELTAFILL_R16 "," DELTAFILL_R32 "," DELTAFILL_R48
                                 "," DELTAFILL_R64 "," DELTAFILL_R80,
                    DELTAFILL_D16(0), DELTAFILL_D16(16), DELTAFILL_D16(32), DELTAFILL_D16(48),
                    DELTAFILL_D16(64), DELTAFILL_D16(80));
  }
};
template <>
struct WgmmaRows<224> {
  static __device__ __forceinline__ void Multiply(float (&d)[112], uint64_t a, uint64_t b,
                                                  bool accumulate) {
    DELTAFILL_WGMMA("224", "112", "113", "114",
                    DELTAFILL_R0 "," DELTAFILL_R16 "," DELTAFILL_R32 "," DELTAFILL_R48
                                 "," DELTAFILL_R64 "," DELTAFILL_R80 "," DELTAFILL_R96,
                    DELTAFILL_D16(0), DELTAFILL_D16(16), DELTAFILL_D16(32), DELTAFILL_D16(48),
                    DELTAFILL_D16(64), DELTAFILL_D16(80), DELTAFILL_D16(96));
  }
};
template <>
struct WgmmaRows<256> {
  static __device__ __forceinline__ void Multiply(float (&d)[128], uint64_t a, uint64_t b,
                                                  bool accumulate) {
    DELTAFILL_WGMMA("256", "128", "129", "130",
                    DELTAFILL_R0 "," DELTAFILL_R16 "," DELTAFILL_R32 "," DELTAFILL_R48
                                 "," DELTAFILL_R64 "," DELTAFILL_R80 "," DELTAFILL_R96
                                 "," DELTAFILL_R112,
                    DELTAFILL_D16(0), DELTAFILL_D16(16), DELTAFILL_D16(32), DELTAFILL_D16(48),
                    DELTAFILL_D16(64), DELTAFILL_D16(80), DELTAFILL_D16(96), DELTAFILL_D16(112));
  }
};

// d[64, 128] += a[64, 16] b[16, 128]; a in registers, b stored as rows of the 16 summed over, in
// two halves of 64 columns.
__device__ __forceinline__ void WgmmaColumns128(float (&d)[64], const uint32_t* a, uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" DELTAFILL_R0 "," DELTAFILL_R16
      "," DELTAFILL_R32 "," DELTAFILL_R48 "}, {%64,%65,%66,%67}, %68, p, 1, 1, 1;\n}\n"
      : DELTAFILL_D16(0), DELTAFILL_D16(16), DELTAFILL_D16(32), DELTAFILL_D16(48)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}

#undef DELTAFILL_WGMMA
#undef DELTAFILL_R112
#undef DELTAFILL_R96
#undef DELTAFILL_R80
#undef DELTAFILL_R64
#undef DELTAFILL_R48
#undef DELTAFILL_R32
#undef DELTAFILL_R16
#undef DELTAFILL_R0
#undef DELTAFILL_D16
#undef DELTAFILL_D4

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_WGMMA_ROWS_CUH_
