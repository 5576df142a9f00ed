#include "kernels/cpu/latent_projection.h"

#include <cmath>
#include <utility>

#include "kernels/cpu/dtype_conversion.h"
#include "kernels/cpu/latent_validation.h"
#include "kernels/cpu/validate.h"

namespace deltafill::kernels::cpu {
namespace {

template <typename Source>
void ConvertAll(const Source* from, int64_t count, DType dtype, void* to) {
  if (dtype == DType::kBF16) {
    Bf16* const out = static_cast<Bf16*>(to);
    for (int64_t i = 0; i < count; ++i) out[i] = ToBf16(ToFloat(from[i]));
  } else {
    float* const out = static_cast<float*>(to);
    for (int64_t i = 0; i < count; ++i) out[i] = ToFloat(from[i]);
  }
}

}  // namespace

Status CpuLatentProjection::Create(const void* host_data, DType dtype, const LatentShape& shape,
                                   DType compute_dtype, std::unique_ptr<LatentProjection>* out) {
  if (Status status = ValidateShape(shape); !status.ok()) return status;
  std::unique_ptr<CpuLatentProjection> projection(new CpuLatentProjection);
  projection->shape_ = shape;
  if (shape.scale == 0.0f) {
    projection->shape_.scale = static_cast<float>(1.0 / std::sqrt(shape.nope_dim + shape.rope_dim));
  }
  const int64_t out_features = shape.ProjectionRows();
  std::unique_ptr<Weight> expansion;
  if (Status status =
          CpuWeight::Create(host_data, dtype, out_features, shape.rank, compute_dtype, &expansion);
      !status.ok()) {
    return status;
  }
  projection->expansion_.reset(static_cast<const CpuWeight*>(expansion.release()));

  const int64_t count = out_features * shape.rank;
  const size_t bytes = static_cast<size_t>(count) * SizeOf(compute_dtype);
  if (!projection->rows_.Reserve(bytes)) return OutOfMemory("latent projection", bytes);
  void* const rows = projection->rows_.as<void>();
  switch (dtype) {
    case DType::kF32:
      ConvertAll(static_cast<const float*>(host_data), count, compute_dtype, rows);
      break;
    case DType::kBF16:
      ConvertAll(static_cast<const Bf16*>(host_data), count, compute_dtype, rows);
      break;
    case DType::kF16:
      ConvertAll(static_cast<const Fp16*>(host_data), count, compute_dtype, rows);
      break;
  }
  *out = std::move(projection);
  return {};
}

}  // namespace deltafill::kernels::cpu
