#include "kernels/cpu/isa.h"

#include <oneapi/dnnl/dnnl.h>

#include <mutex>

#include "hwy/targets.h"

namespace deltafill::kernels::cpu {
namespace {

std::string MachineIsas(bool has_avx2, bool has_avx512) {
  if (has_avx512) return "avx2, avx512";
  return has_avx2 ? "avx2" : "neither avx2 nor avx512";
}

// The first pin of a process.
Status PinFirst(const std::string& requested, std::string* isa) {
  const int64_t machine = hwy::SupportedTargets();
  const bool has_avx2 = (machine & HWY_AVX2) != 0;
  const bool has_avx512 = (machine & HWY_AVX3) != 0;
  std::string chosen = requested;
  if (chosen.empty()) chosen = has_avx512 ? kIsaAvx512 : kIsaAvx2;
  const bool available = (chosen == kIsaAvx2 && has_avx2) || (chosen == kIsaAvx512 && has_avx512);
  if (!available) {
    return InvalidArgument("isa: \"" + requested + "\" is not available; must be empty, \"" +
                           kIsaAvx2 + "\" or \"" + kIsaAvx512 + "\", and this machine has " +
                           MachineIsas(has_avx2, has_avx512));
  }

  const bool avx512 = chosen == kIsaAvx512;
  const dnnl_cpu_isa_t cap = avx512 ? dnnl_cpu_isa_avx512_core_bf16 : dnnl_cpu_isa_avx2;
  const dnnl_status_t set = dnnl_set_max_cpu_isa(cap);
  const int effective = dnnl_get_effective_cpu_isa();
  const int wanted = avx512 ? dnnl_cpu_isa_avx512_core : dnnl_cpu_isa_avx2;
  if ((effective & wanted) != wanted || (effective & ~cap) != 0) {
    return {StatusCode::kInternal, "isa: oneDNN could not be pinned to " + chosen + " (status " +
                                       std::to_string(set) + ", effective set " +
                                       std::to_string(effective) +
                                       "); was it used before the CPU backend was made?"};
  }
  if (!avx512) hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
  *isa = chosen;
  return {};
}

}  // namespace

Status PinIsa(const std::string& requested, std::string* isa) {
  static std::mutex mutex;
  static std::string* const pinned = new std::string;  // guarded by mutex; empty: not yet
  std::lock_guard lock(mutex);
  if (pinned->empty()) {
    if (Status status = PinFirst(requested, pinned); !status.ok()) return status;
  } else if (!requested.empty() && requested != *pinned) {
    return InvalidArgument("isa: \"" + requested + "\" asked for, but this process is already " +
                           "pinned to \"" + *pinned + "\", and one process has one");
  }
  *isa = *pinned;
  return {};
}

std::string Bf16ProductIsa() {
  const int effective = dnnl_get_effective_cpu_isa();
  if ((effective & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16) {
    return "avx512bf16";
  }
  if ((effective & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) return kIsaAvx512;
  return "";
}

}  // namespace deltafill::kernels::cpu
