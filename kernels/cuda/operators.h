// The CUDA backend's lane: one stream, its workspaces, and params on their way to kernels.
#ifndef DELTAFILL_KERNELS_CUDA_OPERATORS_H_
#define DELTAFILL_KERNELS_CUDA_OPERATORS_H_

#include <memory>

#include "kernels/cuda/forward.h"
#include "kernels/cuda/mixture.h"
#include "kernels/cuda/product.h"
#include "kernels/operators.h"

namespace deltafill::kernels::cuda {

class CudaLatentProjection;
class CudaRecording;
class CudaWeight;

// What the lanes of a backend share; lives as long as the last of them.
struct CudaDevice {
  int index = 0;
  DeviceTraits traits;
  ProductLibrary library;
};

// Device memory that latent attention works in; grows with the longest call so far.
struct LatentWorkspace {
  DeviceBuffer expanded, rope;     // prefill: keys and values of some pages
  DeviceBuffer sums, softmax;      // prefill: between chunks; decoding: of parts
  DeviceBuffer parts, part_begin;  // decoding
  DeviceBuffer queries, merged;    // decoding
};

// Rows are bf16 (y of a product may be f32). Workspaces grow with the largest call so far, so a
// lane that has run its largest pass once allocates no more. After an error of the device itself
// every call returns it: nothing issued before it can be trusted.
class CudaOperators final : public Operators {
 public:
  static Status Create(std::shared_ptr<const CudaDevice> device, std::unique_ptr<Operators>* out);
  // Waits for the lane's work.
  ~CudaOperators() override;

  Status Embedding(const EmbeddingParams& params) override;
  Status MatMul(const MatMulParams& params) override;
  Status MatMuls(std::span<const MatMulParams> products) override;
  Status RmsNorm(const RmsNormParams& params) override;
  Status ShortConv(const ShortConvParams& params) override;
  Status ConvTail(const ConvTailParams& params) override;
  Status SwiGlu(const SwiGluParams& params) override;
  Status MatMulSwiGlu(const MatMulSwiGluParams& params) override;
  Status StartMatMulShortConv(const MatMulShortConvParams& params) override;
  Status FinishMatMulShortConv(const MatMulShortConvParams& params) override;
  Status MatMulGatedNorm(const MatMulGatedNormParams& params) override;
  Status MatMulShortConv(const MatMulShortConvParams& params) override;
  Status DeltaRuleForward(const DeltaRuleForwardParams& params) override;
  Status DeltaRuleSummary(const DeltaRuleSummaryParams& params) override;
  Status LatentAppend(const LatentAppendParams& params) override;
  Status LatentPrefill(const LatentPrefillParams& params) override;
  Status MixtureOfExperts(const MixtureParams& params) override;
  Status DeltaRuleStep(const DeltaRuleStepParams& params) override;
  Status LatentStep(const LatentStepParams& params) override;
  Status Synchronize() override;
  Status Mark(std::unique_ptr<LanePoint>* point) override;
  Status Copy(void* to, const void* from, size_t bytes) override;
  Status CopyFromHost(void* to, const void* host_from, size_t bytes) override;
  Status CopyToHost(void* host_to, const void* from, size_t bytes) override;
  Status FillZero(void* to, size_t bytes) override;
  Status BeginRecording() override;
  Status EndRecording(std::unique_ptr<Recording>* out) override;
  Status Replay(Recording& recording, std::span<const uint32_t> tokens) override;

 private:
  explicit CudaOperators(std::shared_ptr<const CudaDevice> device);

  // Makes the device the calling thread's; the lane's failure if it has failed.
  Status Enter();
  Status UploadTokens(std::span<const uint32_t> tokens);
  // For calls that upload host memory of their own: a replay would read it again.
  Status RefuseInRecording(const char* what) const;
  // Rows aligned as products need them: the given ones, or a copy in `scratch`.
  Status AlignedInput(const MatMulParams& params, int64_t width, ConstRows* x);
  Status AlignedOutput(const MatMulParams& params, int64_t width, MutableRows* y);
  Status Multiply(const MatMulParams& params, const CudaWeight& weight, const ConstRows& x,
                  const MutableRows& y, bool accumulate);
  // Whether the convolution runs with its product: known from the params but tails_in.
  Status FusesConv(const MatMulShortConvParams& params, bool* fuses) const;
  // Steps of as many rows each, together: in one launch for every kStepRowsMax rows, or for fewer
  // on cards without clusters. One order of sums, whatever the launches.
  Status MultiplySteps(std::span<const MatMulParams> products);
  Status StepSwiGlu(const MatMulSwiGluParams& params);
  Status AttendSequence(const LatentPrefillParams& params, size_t index,
                        const CudaLatentProjection& projection, bool hopper);
  // Keys and values of positions [begin, end), from the start of a page on; with copies_rope also
  // the rotary part of keys, one after the other.
  Status ExpandLatents(const LatentSequence& sequence, int64_t begin, int64_t end,
                       const CudaLatentProjection& projection, bool copies_rope);
  Status CopyRows(const ConstRows& from, const MutableRows& to, int64_t rows, int64_t width);

  const std::shared_ptr<const CudaDevice> device_;
  Stream stream_;
  Status failure_;
  ForwardWorkspace forward_;
  DeviceBuffer conv_descriptions_;
  DeviceBuffer state_pointers_;
  DeviceBuffer tokens_;
  PinnedBuffer host_tokens_;
  DeviceBuffer product_workspace_;
  DeviceBuffer aligned_x_;
  DeviceBuffer aligned_y_;
  LatentWorkspace latent_;
  MixtureWorkspace mixture_;
  std::unique_ptr<CudaRecording> recording_;  // while calls are recorded
};

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_OPERATORS_H_
