#include "kernels/cuda/operators.h"

#include <cstring>

#include "kernels/cuda/check_operators.h"
#include "kernels/cuda/element_rows.h"
#include "kernels/cuda/recording.h"
#include "kernels/cuda/recurrent.h"
#include "kernels/cuda/row_operators.h"
#include "kernels/cuda/weight.h"

namespace deltafill::kernels::cuda {
namespace {

class CudaPoint final : public LanePoint {
 public:
  ~CudaPoint() override {
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
  }
  Status Record(cudaStream_t stream) {
    if (event_ == nullptr) {
      // Who waits sleeps: there is a thread a lane, and other lanes need the cores.
      const unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
      const cudaError_t created = cudaEventCreateWithFlags(&event_, flags);
      if (Status s = FromCuda(created, "cudaEventCreate"); !s.ok()) return s;
    }
    return FromCuda(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  Status Wait() override { return FromCuda(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

CudaOperators::CudaOperators(std::shared_ptr<const CudaDevice> device)
    : device_(std::move(device)) {}

Status CudaOperators::Create(std::shared_ptr<const CudaDevice> device,
                             std::unique_ptr<Operators>* out) {
  std::unique_ptr<CudaOperators> lane(new CudaOperators(std::move(device)));
  if (Status s = lane->Enter(); !s.ok()) return s;
  if (Status s = lane->stream_.Create(); !s.ok()) return s;
  if (Status s = lane->product_workspace_.Reserve(kProductWorkspaceBytes, lane->stream_.get());
      !s.ok()) {
    return s;
  }
  *out = std::move(lane);
  return {};
}

CudaOperators::~CudaOperators() {
  if (recording_ != nullptr) (void)recording_->End(stream_.get());
  if (stream_.get() != nullptr) (void)cudaStreamSynchronize(stream_.get());
}

Status CudaOperators::Enter() {
  if (!failure_.ok()) return failure_;
  return FromCuda(cudaSetDevice(device_->index), "cudaSetDevice");
}

Status CudaOperators::UploadTokens(std::span<const uint32_t> tokens) {
  if (Status s = tokens_.Reserve(tokens.size_bytes(), stream_.get()); !s.ok()) return s;
  if (recording_ != nullptr) {
    return recording_->CaptureTokens(tokens.size(), tokens_.as<void>(), stream_.get());
  }
  if (Status s = host_tokens_.Acquire(tokens.size_bytes()); !s.ok()) return s;
  std::memcpy(host_tokens_.as<void>(), tokens.data(), tokens.size_bytes());
  return host_tokens_.CopyTo(tokens_.as<void>(), tokens.size_bytes(), stream_.get());
}

Status CudaOperators::Embedding(const EmbeddingParams& params) {
  const CudaWeight* table = nullptr;
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = AsCudaWeight("table", params.table, &table); !s.ok()) return s;
  if (Status s = CheckEmbedding(params, table->out_features(), table->in_features()); !s.ok()) {
    return s;
  }
  if (params.tokens.empty()) return {};
  if (Status s = UploadTokens(params.tokens); !s.ok()) return s;
  return FromCuda(GatherRows(table->rows(), table->in_features(), tokens_.as<uint32_t>(),
                             static_cast<int64_t>(params.tokens.size()), params.y, stream_.get()),
                  "embedding");
}

Status CudaOperators::RmsNorm(const RmsNormParams& params) {
  if (Status s = Enter(); !s.ok()) return s;
  return cuda::RmsNorm(params, stream_.get());
}

Status CudaOperators::ShortConv(const ShortConvParams& params) {
  if (Status s = Enter(); !s.ok()) return s;
  if (params.offsets.size() > kShortConvInlineSequences + 1) {
    if (Status s = RefuseInRecording("short convolution of more than 64 sequences"); !s.ok()) {
      return s;
    }
  }
  return cuda::ShortConv(params, &conv_descriptions_, stream_.get());
}

Status CudaOperators::ConvTail(const ConvTailParams& params) {
  if (Status s = Enter(); !s.ok()) return s;
  return cuda::ConvTail(params, stream_.get());
}

Status CudaOperators::SwiGlu(const SwiGluParams& params) {
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = CheckSwiGlu(params); !s.ok()) return s;
  return FromCuda(SwiGluRows(params, stream_.get()), "swiglu");
}

Status CudaOperators::DeltaRuleForward(const DeltaRuleForwardParams& params) {
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = RefuseInRecording("delta rule forward"); !s.ok()) return s;
  return cuda::DeltaRuleForward(params, {}, &forward_, stream_.get());
}

Status CudaOperators::DeltaRuleSummary(const DeltaRuleSummaryParams& params) {
  if (Status s = Enter(); !s.ok()) return s;
  return cuda::DeltaRuleSummary(params, stream_.get());
}

Status CudaOperators::DeltaRuleStep(const DeltaRuleStepParams& params) {
  if (Status s = Enter(); !s.ok()) return s;
  if (params.batch > kStepInlineBatch) {
    if (Status s = RefuseInRecording("a step of more than 256 sequences"); !s.ok()) return s;
  }
  return cuda::DeltaRuleStep(params, &state_pointers_, stream_.get());
}

Status CudaOperators::Synchronize() {
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = RefuseInRecording("Synchronize"); !s.ok()) return s;
  failure_ = stream_.Synchronize();
  return failure_;
}

Status CudaOperators::Mark(std::unique_ptr<LanePoint>* point) {
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = RefuseInRecording("Mark"); !s.ok()) return s;
  auto* marked = dynamic_cast<CudaPoint*>(point->get());
  if (marked == nullptr) {
    if (*point != nullptr) return InvalidArgument("point: was not made by a CUDA backend");
    auto made = std::make_unique<CudaPoint>();
    marked = made.get();
    *point = std::move(made);
  }
  return marked->Record(stream_.get());
}

Status CudaOperators::Copy(void* to, const void* from, size_t bytes) {
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = CheckCopy(to, from, bytes); !s.ok()) return s;
  if (bytes == 0) return {};
  return FromCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()),
                  "cudaMemcpyAsync within the device");
}

Status CudaOperators::CopyFromHost(void* to, const void* host_from, size_t bytes) {
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = RefuseInRecording("copy from the host"); !s.ok()) return s;
  if (Status s = CheckCopy(to, host_from, bytes); !s.ok()) return s;
  if (bytes == 0) return {};
  return FromCuda(cudaMemcpyAsync(to, host_from, bytes, cudaMemcpyHostToDevice, stream_.get()),
                  "cudaMemcpyAsync to the device");
}

Status CudaOperators::CopyToHost(void* host_to, const void* from, size_t bytes) {
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = RefuseInRecording("copy to the host"); !s.ok()) return s;
  if (Status s = CheckCopy(host_to, from, bytes); !s.ok()) return s;
  if (bytes == 0) return {};
  return FromCuda(cudaMemcpyAsync(host_to, from, bytes, cudaMemcpyDeviceToHost, stream_.get()),
                  "cudaMemcpyAsync to the host");
}

Status CudaOperators::FillZero(void* to, size_t bytes) {
  if (Status s = Enter(); !s.ok()) return s;
  if (Status s = CheckCopy(to, to, bytes); !s.ok()) return s;
  if (bytes == 0) return {};
  return FromCuda(cudaMemsetAsync(to, 0, bytes, stream_.get()), "cudaMemsetAsync");
}

}  // namespace deltafill::kernels::cuda
