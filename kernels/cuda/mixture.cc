#include "kernels/cuda/mixture.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/mixture_plan.h"
#include "kernels/cuda/mixture_routing.h"
#include "kernels/cuda/weight.h"

namespace deltafill::kernels::cuda {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int64_t kClusterRows = 96;  // an expert, from which on clusters are faster

template <typename T>
Status Upload(const std::vector<T>& values, DeviceBuffer* buffer, cudaStream_t stream) {
  const size_t bytes = values.size() * sizeof(T);
  if (Status s = buffer->Reserve(bytes, stream); !s.ok()) return s;
  if (Status s =
          FromCuda(cudaMemcpyAsync(buffer->as<void>(), static_cast<const void*>(values.data()),
                                   bytes, cudaMemcpyHostToDevice, stream),
                   "cudaMemcpyAsync");
      !s.ok()) {
    return s;
  }
  return FromCuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

Status FindTable(const MixtureParams& params, bool maps, bool may_upload,
                 MixtureWorkspace* workspace, cudaStream_t stream, const ExpertTable** out) {
  std::vector<const void*> addresses;
  if (Status s = ExpertTable::ReadAddresses(params, &addresses); !s.ok()) return s;
  for (const auto& table : workspace->tables) {
    if (!table->Serves(params.shape, addresses, maps)) continue;
    *out = table.get();
    return {};
  }
  if (!may_upload) {
    return {StatusCode::kUnsupported,
            "mixture of experts: cannot be recorded before it has run on the lane"};
  }
  auto table = std::make_unique<ExpertTable>();
  if (Status s = table->Create(params.shape, std::move(addresses), maps, stream); !s.ok()) {
    return s;
  }
  *out = table.get();
  workspace->tables.push_back(std::move(table));
  return {};
}

Status ReservePass(const MixtureShape& shape, int64_t rows, MixtureWorkspace* workspace,
                   cudaStream_t stream) {
  const size_t choices = static_cast<size_t>(rows * shape.top_k);
  const size_t routing = LayOutMixture(shape, rows).bytes;
  if (Status s = workspace->routing.Reserve(routing, stream); !s.ok()) return s;
  const size_t packed = choices * static_cast<size_t>(shape.hidden) * sizeof(Bf16);
  if (Status s = workspace->packed.Reserve(packed, stream); !s.ok()) return s;
  const size_t inner = choices * static_cast<size_t>(shape.expert_width) * sizeof(Bf16);
  return workspace->inner.Reserve(inner, stream);
}

MixtureRouting MakeRouting(const MixtureParams& params, int64_t first_row, int64_t rows,
                           const MixtureWorkspace& workspace) {
  const MixtureLayout layout = LayOutMixture(params.shape, rows);
  uint8_t* const memory = workspace.routing.as<uint8_t>();
  MixtureRouting routing;
  routing.shape = params.shape;
  routing.x = static_cast<const Bf16*>(params.x.data) + first_row * params.x.row_stride;
  routing.x_stride = params.x.row_stride;
  routing.y = static_cast<Bf16*>(params.y.data) + first_row * params.y.row_stride;
  routing.y_stride = params.y.row_stride;
  routing.rows = static_cast<int>(rows);
  routing.router = params.router;
  routing.correction_bias = params.correction_bias;
  routing.logits = reinterpret_cast<float*>(memory + layout.logits);
  routing.experts = reinterpret_cast<int32_t*>(memory + layout.experts);
  routing.weights = reinterpret_cast<float*>(memory + layout.weights);
  routing.slots = reinterpret_cast<int32_t*>(memory + layout.slots);
  routing.counts = reinterpret_cast<int32_t*>(memory + layout.counts);
  routing.begin = reinterpret_cast<int32_t*>(memory + layout.begin);
  routing.tiles = reinterpret_cast<TokenTile*>(memory + layout.tiles);
  routing.work = reinterpret_cast<GroupedWork*>(memory + layout.work);
  routing.packed = workspace.packed.as<Bf16>();
  return routing;
}

// packed -> inner -> packed.
Status MultiplyExperts(const MixtureRouting& routing, const ExpertTable& table,
                       const DeviceTraits& device, const MixtureTuning& tuning,
                       const MixtureWorkspace& workspace, cudaStream_t stream) {
  const MixtureShape& shape = routing.shape;
  GroupedProduct up;
  up.tiles = routing.tiles;
  up.work = routing.work;
  up.ticket = 0;
  up.tiles_max = TokenTilesMax(shape, routing.rows);
  up.x = routing.packed;
  up.x_rows = int64_t{routing.rows} * shape.top_k;
  up.in_features = shape.hidden;
  up.y = workspace.inner.as<Bf16>();
  up.out_features = shape.expert_width;
  up.swiglu = true;
  GroupedProduct down = up;
  down.ticket = 1;
  down.x = up.y;
  down.in_features = shape.expert_width;
  down.y = routing.packed;
  down.out_features = shape.hidden;
  down.swiglu = false;
  // Sharing rows between CTAs pays once there are enough of them.
  const int by_rows = up.x_rows >= kClusterRows * shape.experts ? 2 : 1;
  const int cluster = tuning.cluster != 0 ? tuning.cluster : by_rows;
  int index = 0;
  for (const GroupedProduct* product : {&up, &down}) {
    Status status;
    if (table.has_maps()) {
      status =
          LaunchGroupedHopper(*product, table.maps(index), device.multiprocessors, cluster, stream);
    } else {
      status = FromCuda(LaunchGroupedPortable(*product, table.matrices(index), stream),
                        "grouped product");
    }
    if (!status.ok()) return status;
    ++index;
  }
  return {};
}

Status RunPass(const MixtureRouting& routing, bool step, const ExpertTable& table,
               const DeviceTraits& device, const MixtureTuning& tuning,
               const MixtureWorkspace& workspace, cudaStream_t stream) {
  if (tuning.products_only) {  // on what the last pass left
    const cudaError_t error =
        cudaMemsetAsync(routing.work->tickets, 0, sizeof(routing.work->tickets), stream);
    if (Status s = FromCuda(error, "cudaMemsetAsync"); !s.ok()) return s;
  } else {
    const cudaError_t errors[] = {
        LaunchRouterLogits(routing, step, stream), LaunchChooseExperts(routing, stream),
        LaunchPlaceExperts(routing, stream), LaunchPackRows(routing, stream)};
    for (const cudaError_t error : errors) {
      if (Status s = FromCuda(error, "expert routing"); !s.ok()) return s;
    }
  }
  if (!tuning.routing_only) {
    if (Status s = MultiplyExperts(routing, table, device, tuning, workspace, stream); !s.ok()) {
      return s;
    }
  }
  if (tuning.products_only) return {};
  return FromCuda(LaunchCombineRows(routing, stream), "expert combination");
}

}  // namespace

Status ExpertTable::ReadAddresses(const MixtureParams& params, std::vector<const void*>* out) {
  out->clear();
  out->reserve(params.experts.size() * 2);
  for (const ExpertWeights& expert : params.experts) {
    for (const Weight* weight : {expert.gate_up, expert.down}) {
      const CudaWeight* ours = nullptr;
      if (Status s = AsCudaWeight("experts", weight, &ours); !s.ok()) return s;
      out->push_back(ours->rows());
    }
  }
  return {};
}

bool ExpertTable::Serves(const MixtureShape& shape, const std::vector<const void*>& addresses,
                         bool maps) const {
  return (maps_.bytes() > 0) == maps && hidden_ == shape.hidden &&
         expert_width_ == shape.expert_width && addresses_ == addresses;
}

Status ExpertTable::Create(const MixtureShape& shape, std::vector<const void*> addresses, bool maps,
                           cudaStream_t stream) {
  addresses_ = std::move(addresses);
  experts_ = shape.experts;
  hidden_ = shape.hidden;
  expert_width_ = shape.expert_width;
  const size_t experts = static_cast<size_t>(experts_);
  std::vector<const void*> pointers(2 * experts);
  for (size_t i = 0; i < experts; ++i) {
    pointers[i] = addresses_[2 * i];
    pointers[experts + i] = addresses_[2 * i + 1];
  }
  if (Status s = Upload(pointers, &pointers_, stream); !s.ok()) return s;
  if (!maps) return {};
  std::vector<TensorMap> made(2 * experts);
  for (size_t i = 0; i < experts; ++i) {
    if (Status s = MakeExpertMap(pointers[i], shape.expert_width, shape.hidden, true, &made[i]);
        !s.ok()) {
      return s;
    }
    if (Status s = MakeExpertMap(pointers[experts + i], shape.hidden, shape.expert_width, false,
                                 &made[experts + i]);
        !s.ok()) {
      return s;
    }
  }
  return Upload(made, &maps_, stream);
}

Status MixtureOfExperts(const MixtureParams& params, const DeviceTraits& device,
                        const MixtureTuning& tuning, bool may_upload, MixtureWorkspace* workspace,
                        cudaStream_t stream) {
  if (Status s = CheckMixture(params); !s.ok()) return s;
  if (params.rows == 0) return {};
  const bool hopper = device.major == 9 && device.minor == 0 && !tuning.force_portable;
  const ExpertTable* table = nullptr;
  if (Status s = FindTable(params, hopper, may_upload, workspace, stream, &table); !s.ok()) {
    return s;
  }
  const int64_t pass_rows = std::min(params.rows, MixturePassRows(params.shape));
  if (Status s = ReservePass(params.shape, pass_rows, workspace, stream); !s.ok()) return s;
  for (int64_t first_row = 0; first_row < params.rows; first_row += pass_rows) {
    const int64_t rows = std::min(pass_rows, params.rows - first_row);
    const MixtureRouting routing = MakeRouting(params, first_row, rows, *workspace);
    if (Status s = RunPass(routing, params.step, *table, device, tuning, *workspace, stream);
        !s.ok()) {
      return s;
    }
  }
  return {};
}

}  // namespace deltafill::kernels::cuda
