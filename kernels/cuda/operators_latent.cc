// Latent attention of a lane: pages to kernels.
#include <algorithm>
#include <vector>

#include "kernels/cuda/latent.h"
#include "kernels/cuda/latent_hopper.h"
#include "kernels/cuda/latent_pages.h"
#include "kernels/cuda/latent_plan.h"
#include "kernels/cuda/latent_projection.h"
#include "kernels/cuda/log2e.h"
#include "kernels/cuda/operators.h"

namespace deltafill::kernels::cuda {
namespace {

using Bf16 = __nv_bfloat16;

Status AsCudaProjection(const LatentProjection* projection, const CudaLatentProjection** out) {
  if (projection == nullptr) return InvalidArgument("projection: is null");
  *out = dynamic_cast<const CudaLatentProjection*>(projection);
  if (*out != nullptr) return {};
  return InvalidArgument("projection: was not made by a CUDA backend");
}

template <typename T>
Status UploadTo(const std::vector<T>& values, DeviceBuffer* buffer, cudaStream_t stream) {
  const size_t bytes = values.size() * sizeof(T);
  if (Status s = buffer->Reserve(bytes, stream); !s.ok()) return s;
  return FromCuda(
      cudaMemcpyAsync(buffer->as<void>(), values.data(), bytes, cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");
}

}  // namespace

Status CudaOperators::LatentAppend(const LatentAppendParams& params) {
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = RefuseInRecording("latent append"); !s.ok()) return s;
  if (Status s = CheckLatentAppend(params); !s.ok()) return s;
  LatentAppendKernelParams kernel;
  kernel.x = static_cast<const Bf16*>(params.x.data);
  kernel.x_stride = params.x.row_stride;
  kernel.norm_weight = params.norm_weight;
  kernel.eps = params.eps;
  kernel.rank = params.rank;
  kernel.rope_dim = params.rope_dim;
  const int64_t width = params.rank + params.rope_dim;
  for (size_t i = 0; i < params.sequences.size(); ++i) {
    const LatentSequence& sequence = params.sequences[i];
    for (int64_t row = params.offsets[i]; row < params.offsets[i + 1]; row = kernel.end_row) {
      if (kernel.run_count == kLatentAppendRuns) {
        const cudaError_t launched = LaunchLatentAppend(kernel, stream_.get());
        if (Status s = FromCuda(launched, "latent append"); !s.ok()) return s;
        kernel.run_count = 0;
      }
      const int64_t token = sequence.first_token + row - params.offsets[i];
      const int64_t left_of_page = kLatentPageTokens - token % kLatentPageTokens;
      kernel.runs[kernel.run_count++] = {row, LatentRowOf(sequence, token, width)};
      kernel.end_row = row + std::min(left_of_page, params.offsets[i + 1] - row);
    }
  }
  return FromCuda(LaunchLatentAppend(kernel, stream_.get()), "latent append");
}

Status CudaOperators::LatentPrefill(const LatentPrefillParams& params) {
  const CudaLatentProjection* projection = nullptr;
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = RefuseInRecording("latent prefill"); !s.ok()) return s;
  if (Status s = AsCudaProjection(params.projection, &projection); !s.ok()) return s;
  if (Status s = CheckLatentPrefill(params, projection->shape()); !s.ok()) return s;
  const DeviceTraits& device = device_->traits;
  const bool hopper = ServesLatentHopper(projection->shape(), device.major, device.minor);
  for (size_t i = 0; i < params.sequences.size(); ++i) {
    if (params.offsets[i + 1] == params.offsets[i]) continue;
    if (Status s = AttendSequence(params, i, *projection, hopper); !s.ok()) return s;
  }
  return {};
}

Status CudaOperators::LatentStep(const LatentStepParams& params) {
  const CudaLatentProjection* projection = nullptr;
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = RefuseInRecording("latent step"); !s.ok()) return s;
  if (Status s = AsCudaProjection(params.projection, &projection); !s.ok()) return s;
  const LatentShape& shape = projection->shape();
  if (Status s = CheckLatentStep(params, shape); !s.ok()) return s;
  std::vector<int64_t> positions;
  for (const LatentSequence& sequence : params.sequences) positions.push_back(sequence.first_token);
  LatentStepKernelParams kernel;
  kernel.shape = shape;
  kernel.scale_log2 = LatentScale(shape) * kLog2E;
  kernel.shared_bytes = device_->traits.shared_bytes_per_cta;
  kernel.kv_b = static_cast<const Bf16*>(projection->weight().rows());
  kernel.q = static_cast<const Bf16*>(params.q.data);
  kernel.q_stride = params.q.row_stride;
  kernel.o = static_cast<Bf16*>(params.o.data);
  kernel.o_stride = params.o.row_stride;
  const cudaStream_t stream = stream_.get();
  const size_t heads = static_cast<size_t>(shape.heads);
  const int64_t width = shape.LatentWidth();
  for (const LatentStepGroup& group : PlanLatentStep(positions)) {
    std::vector<LatentPart> parts;
    std::vector<int32_t> part_begin = {0};
    for (int64_t i = group.first; i < group.first + group.count; ++i) {
      const int64_t end = positions[static_cast<size_t>(i)] + 1;
      for (int64_t token = 0; token < end; token += kLatentPartTokens) {
        parts.push_back({LatentRowOf(params.sequences[static_cast<size_t>(i)], token, width),
                         static_cast<int32_t>(std::min(kLatentPartTokens, end - token)),
                         static_cast<int32_t>(i)});
      }
      part_begin.push_back(static_cast<int32_t>(parts.size()));
    }
    LatentWorkspace& w = latent_;
    if (Status s = UploadTo(parts, &w.parts, stream); !s.ok()) return s;
    if (Status s = UploadTo(part_begin, &w.part_begin, stream); !s.ok()) return s;
    const size_t queries = static_cast<size_t>(group.count * width) * heads * sizeof(Bf16);
    const size_t merged = static_cast<size_t>(group.count * shape.rank) * heads * sizeof(float);
    const size_t states = parts.size() * heads;
    if (Status s = w.queries.Reserve(queries, stream); !s.ok()) return s;
    if (Status s = w.merged.Reserve(merged, stream); !s.ok()) return s;
    if (Status s = w.sums.Reserve(states * static_cast<size_t>(shape.rank) * 4, stream); !s.ok()) {
      return s;
    }
    if (Status s = w.softmax.Reserve(states * sizeof(float2), stream); !s.ok()) return s;
    kernel.first_sequence = static_cast<int>(group.first);
    kernel.sequences = static_cast<int>(group.count);
    kernel.parts = w.parts.as<LatentPart>();
    kernel.part_begin = w.part_begin.as<int32_t>();
    kernel.part_count = static_cast<int>(parts.size());
    kernel.queries = w.queries.as<Bf16>();
    kernel.merged = w.merged.as<float>();
    kernel.averages = w.sums.as<float>();
    kernel.softmax = w.softmax.as<float2>();
    if (Status s = FromCuda(LaunchLatentStep(kernel, stream), "latent step"); !s.ok()) return s;
  }
  return {};
}

}  // namespace deltafill::kernels::cuda
