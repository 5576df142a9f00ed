// The process's instruction set: chosen once, for Highway's dispatch and for oneDNN alike.
#ifndef DELTAFILL_KERNELS_CPU_ISA_H_
#define DELTAFILL_KERNELS_CPU_ISA_H_

#include <string>

#include "kernels/status.h"

namespace deltafill::kernels::cpu {

// The values of BackendOptions::isa, and how the numerics id spells them.
inline constexpr char kIsaAvx2[] = "avx2";
inline constexpr char kIsaAvx512[] = "avx512";

// Pins Highway's targets and oneDNN's largest instruction set to `requested` ("": the best the
// machine has) and returns its name. Both libraries keep this per process and cannot be re-pinned,
// so a later call that asks for another set fails with kInvalidArgument, as does a set the machine
// lacks. oneDNN is capped at AVX-512 BF16 (no AMX), so that equal names mean equal bits. Must run
// before anything else in the process uses oneDNN. Thread-safe.
Status PinIsa(const std::string& requested, std::string* isa);

// What of oneDNN's instruction set decides the bits of bf16 products: "avx512" (emulated) or
// "avx512bf16". Empty if bf16 products are not to be had. Call after PinIsa.
std::string Bf16ProductIsa();

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_ISA_H_
