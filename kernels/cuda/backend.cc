#include "kernels/cuda/backend.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/check_operators.h"
#include "kernels/cuda/latent_plan.h"
#include "kernels/cuda/latent_projection.h"
#include "kernels/cuda/step_product.h"

namespace deltafill::kernels::cuda {

Status CudaBackend::Open(const BackendOptions& options, std::unique_ptr<Backend>* out) {
  if (Status s = CheckOptions(options); !s.ok()) return s;
  if (Status s = SelectDevice(options.device); !s.ok()) return s;
  std::unique_ptr<CudaBackend> backend(new CudaBackend);
  CudaDevice& device = *backend->device_;
  device.index = options.device;
  if (Status s = ReadDeviceTraits(&device.traits); !s.ok()) return s;
  if (device.traits.major < 8) {
    return {StatusCode::kUnsupported,
            "no CUDA device: device " + std::to_string(options.device) +
                " has compute capability " + std::to_string(device.traits.major) + "." +
                std::to_string(device.traits.minor) + ", and 8.0 or later is needed"};
  }
  if (Status s = device.library.Open(); !s.ok()) return s;
  if (Status s = backend->OpenPool(); !s.ok()) return s;
  backend->NameNumerics();
  *out = std::move(backend);
  return {};
}

Status CudaBackend::Enter() const {
  return FromCuda(cudaSetDevice(device_->index), "cudaSetDevice");
}

void CudaBackend::NameNumerics() {
  const std::lock_guard<std::mutex> lock(mutex_);  // the last to come names all choices
  const DeviceTraits& traits = device_->traits;
  numerics_ = CudaNumericsName(traits.major, traits.minor, traits.multiprocessors,
                               device_->library.version(), products_.choices());
}

Status CudaBackend::NewOperators(int threads, std::unique_ptr<Operators>* out) {
  if (threads < 1) {
    return InvalidArgument("threads: " + std::to_string(threads) + " is not at least 1");
  }
  return CudaOperators::Create(device_, out);
}

// Everything on the device comes out of the pool that cudaMallocAsync uses by itself. It gives
// nothing back, so that allocating what fits is bookkeeping on the host.
Status CudaBackend::OpenPool() {
  if (Status s = idle_.Create(); !s.ok()) return s;
  const int device = device_->index;
  if (Status s = FromCuda(cudaDeviceGetMemPool(&pool_, device), "cudaDeviceGetMemPool"); !s.ok()) {
    return s;
  }
  uint64_t threshold = std::numeric_limits<uint64_t>::max();
  if (Status s =
          FromCuda(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold),
                   "cudaMemPoolSetAttribute");
      !s.ok()) {
    return s;
  }
  // Unlike cudaMalloc's, a pool's memory is its own device's alone until it is said otherwise.
  int devices = 0;
  if (Status s = FromCuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount"); !s.ok()) return s;
  for (int peer = 0; peer < devices; ++peer) {
    int can_access = 0;
    if (peer == device || cudaDeviceCanAccessPeer(&can_access, peer, device) != cudaSuccess ||
        can_access == 0) {
      continue;
    }
    const cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, peer},
                                      cudaMemAccessFlagsProtReadWrite};
    if (cudaMemPoolSetAccess(pool_, &access, 1) != cudaSuccess) (void)cudaGetLastError();
  }
  return {};
}

Status CudaBackend::HeldBytes(size_t* out) const {
  uint64_t held = 0;
  const cudaError_t got = cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &held);
  *out = held;
  return FromCuda(got, "cudaMemPoolGetAttribute");
}

Status CudaBackend::ReserveMemory(size_t bytes) {
  size_t held = 0;
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = HeldBytes(&held); !s.ok()) return s;
  if (bytes <= held) return {};
  // In one piece: what comes out of it later may be as large as all of it.
  void* memory = nullptr;
  if (Status s = Allocate(bytes, &memory); !s.ok()) return s;
  Free(memory);
  return {};
}

Status CudaBackend::Allocate(size_t bytes, void** out) {
  if (Status s = Enter(); !s.ok()) return s;
  const cudaError_t error = cudaMallocAsync(out, std::max<size_t>(bytes, 1), idle_.get());
  if (Status s = FromCuda(error, "cudaMallocAsync"); !s.ok()) return AllocationFailed(s, bytes);
  // From here on any stream may use it.
  return idle_.Synchronize();
}

void CudaBackend::Free(void* buffer) {
  if (buffer != nullptr && Enter().ok()) (void)cudaFree(buffer);
}

Status CudaBackend::AllocateHost(size_t bytes, void** out) {
  if (Status s = Enter(); !s.ok()) return s;
  // Usable from every device.
  const cudaError_t error = cudaHostAlloc(out, std::max<size_t>(bytes, 1), cudaHostAllocPortable);
  if (Status s = FromCuda(error, "cudaHostAlloc"); !s.ok()) return AllocationFailed(s, bytes);
  return {};
}

void CudaBackend::FreeHost(void* buffer) {
  if (buffer != nullptr && Enter().ok()) (void)cudaFreeHost(buffer);
}

// What has gone wrong for good is what every call answers.
Status CudaBackend::CheckDevice() {
  if (Status s = Enter(); !s.ok()) return s;
  return idle_.Synchronize();
}

Status CudaBackend::ReadMemory(MemoryReport* out) {
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = HeldBytes(&out->held_bytes); !s.ok()) return s;
  return FromCuda(cudaMemGetInfo(&out->free_bytes, &out->total_bytes), "cudaMemGetInfo");
}

Status CudaBackend::TakeUpload(std::unique_ptr<WeightUpload>* out) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!uploads_.empty()) {
      *out = std::move(uploads_.back());
      uploads_.pop_back();
      return {};
    }
  }
  *out = std::make_unique<WeightUpload>();
  return (*out)->Create();
}

void CudaBackend::GiveUpload(std::unique_ptr<WeightUpload> upload) {
  const std::lock_guard<std::mutex> lock(mutex_);
  uploads_.push_back(std::move(upload));
}

template <typename Fill>
Status CudaBackend::MakeWeight(int64_t out_features, int64_t in_features, Fill fill,
                               std::unique_ptr<Weight>* out) {
  if (Status s = Enter(); !s.ok()) return s;
  std::unique_ptr<WeightUpload> upload;
  if (Status s = TakeUpload(&upload); !s.ok()) return s;
  auto weight = std::make_unique<CudaWeight>(out_features, in_features);
  if (Status s = weight->Reserve(upload->stream()); !s.ok()) return s;
  if (Status s = fill(*upload, weight->rows_to_fill()); !s.ok()) return s;
  if (IsHopper(device_->traits)) {
    const Status boxed =
        MakeStepBoxes(weight->rows(), out_features, in_features, weight->step_boxes_to_fill());
    if (!boxed.ok()) return boxed;
  }
  std::shared_ptr<const ProductSet> products;
  if (Status s =
          products_.Get(weight->rows(), out_features, in_features, upload->stream(), &products);
      !s.ok()) {
    return s;
  }
  weight->SetProducts(std::move(products));
  GiveUpload(std::move(upload));
  NameNumerics();
  *out = std::move(weight);
  return {};
}

Status CudaBackend::NewWeight(const void* host_data, DType dtype, int64_t out_features,
                              int64_t in_features, std::unique_ptr<Weight>* out) {
  if (Status s = CheckWeight(host_data, dtype, out_features, in_features); !s.ok()) return s;
  const auto fill = [&](WeightUpload& upload, void* rows) {
    return upload.Copy(host_data, dtype, out_features * in_features, rows);
  };
  return MakeWeight(out_features, in_features, fill, out);
}

Status CudaBackend::NewRandomWeight(uint64_t seed, float limit, int64_t out_features,
                                    int64_t in_features, std::unique_ptr<Weight>* out) {
  // Nothing but the pointer of a host weight is missing.
  if (Status s = CheckWeight(&seed, DType::kBF16, out_features, in_features); !s.ok()) return s;
  const auto fill = [&](WeightUpload& upload, void* rows) {
    const cudaError_t filled =
        FillUniform(rows, out_features * in_features, seed, limit, upload.stream());
    if (Status s = FromCuda(filled, "random weights"); !s.ok()) return s;
    return FromCuda(cudaStreamSynchronize(upload.stream()), "random weights");
  };
  return MakeWeight(out_features, in_features, fill, out);
}

Status CudaBackend::NewLatentProjection(const void* host_data, DType dtype,
                                        const LatentShape& shape,
                                        std::unique_ptr<LatentProjection>* out) {
  if (Status s = CheckLatentShape(shape); !s.ok()) return s;
  std::unique_ptr<Weight> weight;
  const int64_t rows = shape.ProjectionRows();
  if (Status s = NewWeight(host_data, dtype, rows, shape.rank, &weight); !s.ok()) return s;
  *out = std::make_unique<CudaLatentProjection>(shape, std::move(weight));
  return {};
}

}  // namespace deltafill::kernels::cuda
