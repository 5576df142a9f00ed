// kv_b_proj of a layer on the device, as one weight: prefill multiplies latents by it, decoding
// reads its rows.
#ifndef DELTAFILL_KERNELS_CUDA_LATENT_PROJECTION_H_
#define DELTAFILL_KERNELS_CUDA_LATENT_PROJECTION_H_

#include <memory>
#include <utility>

#include "kernels/cuda/weight.h"
#include "kernels/latent_attention.h"

namespace deltafill::kernels::cuda {

class CudaLatentProjection final : public LatentProjection {
 public:
  // `weight` is a CudaWeight [heads * (nope_dim + value_dim), rank].
  CudaLatentProjection(const LatentShape& shape, std::unique_ptr<Weight> weight)
      : shape_(shape), weight_(std::move(weight)) {}

  const LatentShape& shape() const override { return shape_; }
  const CudaWeight& weight() const { return static_cast<const CudaWeight&>(*weight_); }

 private:
  const LatentShape shape_;
  const std::unique_ptr<Weight> weight_;
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_LATENT_PROJECTION_H_
