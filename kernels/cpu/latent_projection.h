// W_k and W_v of a latent attention layer on the CPU, in the two forms its operators want.
#ifndef DELTAFILL_KERNELS_CPU_LATENT_PROJECTION_H_
#define DELTAFILL_KERNELS_CPU_LATENT_PROJECTION_H_

#include <cstdint>
#include <memory>

#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/weight.h"
#include "kernels/latent_attention.h"

namespace deltafill::kernels::cpu {

// Immutable after Create. With compute dtype bf16 both forms hold the same rounded values.
class CpuLatentProjection final : public LatentProjection {
 public:
  static Status Create(const void* host_data, DType dtype, const LatentShape& shape,
                       DType compute_dtype, std::unique_ptr<LatentProjection>* out);

  const LatentShape& shape() const override { return shape_; }  // scale resolved
  int64_t HeadRows() const { return shape_.nope_dim + shape_.value_dim; }

  // [heads * HeadRows(), rank] for products with panels of latents: prefill.
  const CpuWeight& expansion() const { return *expansion_; }

  // The same, row-major, of dtype(): the step reads each element once.
  const void* rows() const { return rows_.as<void>(); }
  DType dtype() const { return expansion_->compute_dtype(); }

 private:
  CpuLatentProjection() = default;

  LatentShape shape_;
  std::unique_ptr<const CpuWeight> expansion_;
  AlignedBuffer rows_;
};

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_LATENT_PROJECTION_H_
