#include <oneapi/dnnl/dnnl.h>

#include <new>

#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/latent_projection.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/validate.h"
#include "kernels/cpu/weight.h"

namespace deltafill::kernels {
namespace cpu {
namespace {

// Raised whenever the bits of any CPU operator change.
constexpr int kBitsVersion = 1;

std::string NumericsName(DType compute_dtype, const std::string& product_isa) {
  const dnnl_version_t& library = *dnnl_version();
  return std::string("cpu/") + (compute_dtype == DType::kF32 ? "f32" : "bf16") + "/" + product_isa +
         "/onednn-" + std::to_string(library.major) + "." + std::to_string(library.minor) + "." +
         std::to_string(library.patch) + "/block" + std::to_string(kBlockTokens) + "/v" +
         std::to_string(kBitsVersion);
}

// Immutable, hence thread-safe.
class CpuBackend final : public Backend {
 public:
  CpuBackend(DType compute_dtype, std::string numerics)
      : compute_dtype_(compute_dtype), numerics_(std::move(numerics)) {}

  const std::string& numerics() const override { return numerics_; }
  DType activation_dtype() const override { return DType::kF32; }
  bool is_host_memory() const override { return true; }

  Status NewOperators(int threads, std::unique_ptr<Operators>* out) override {
    if (Status status = ValidateThreads(threads); !status.ok()) return status;
    *out = std::make_unique<CpuOperators>(threads);
    return {};
  }

  Status Allocate(size_t bytes, void** out) override {
    *out = AllocateAligned(bytes);
    return *out != nullptr ? Status() : OutOfMemory("buffer", bytes);
  }

  void Free(void* buffer) override { FreeAligned(buffer); }

  Status NewWeight(const void* host_data, DType dtype, int64_t out_features, int64_t in_features,
                   std::unique_ptr<Weight>* out) override {
    return CpuWeight::Create(host_data, dtype, out_features, in_features, compute_dtype_, out);
  }

  Status NewLatentProjection(const void* host_data, DType dtype, const LatentShape& shape,
                             std::unique_ptr<LatentProjection>* out) override {
    return CpuLatentProjection::Create(host_data, dtype, shape, compute_dtype_, out);
  }

 private:
  const DType compute_dtype_;
  const std::string numerics_;
};

}  // namespace
}  // namespace cpu

Status NewCpuBackend(const BackendOptions& options, std::unique_ptr<Backend>* out) {
  if (Status status = cpu::ValidateOptions(options); !status.ok()) return status;
  std::string isa;
  if (Status status = cpu::PinIsa(options.isa, &isa); !status.ok()) return status;
  if (options.compute_dtype == DType::kBF16) {
    isa = cpu::Bf16ProductIsa();
    if (isa.empty()) {
      return {StatusCode::kUnsupported,
              "compute_dtype: bf16 products need avx512, and this process runs avx2"};
    }
  }
  *out = std::make_unique<cpu::CpuBackend>(options.compute_dtype,
                                           cpu::NumericsName(options.compute_dtype, isa));
  return {};
}

}  // namespace deltafill::kernels
