// A lane whose calls somebody looks at, for benchmarks: what operators take, and parts of a pass.
#ifndef DELTAFILL_TESTS_BENCH_OBSERVED_OPERATORS_H_
#define DELTAFILL_TESTS_BENCH_OBSERVED_OPERATORS_H_

#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "kernels/operators.h"

namespace deltafill::test {

inline double SecondsNow() {
  using std::chrono::duration;
  return duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Called around each operator and copy of a lane, on its thread. `lane` is the one underneath.
class OperatorObserver {
 public:
  virtual ~OperatorObserver() = default;
  virtual kernels::Status Before(kernels::Operators& lane, const std::string& name) = 0;
  virtual kernels::Status After(kernels::Operators& lane, const std::string& name) = 0;
  // Calls that are left out.
  virtual bool Omits(const std::string& /*name*/) { return false; }
};

// Waits for every call: seconds by operator, each with a few microseconds of waiting, so their sum
// is above an undisturbed run's.
class OperatorTimes final : public OperatorObserver {
 public:
  const std::map<std::string, double>& seconds() const { return seconds_; }

  kernels::Status Before(kernels::Operators& lane, const std::string&) override {
    const kernels::Status status = lane.Synchronize();
    start_ = SecondsNow();
    return status;
  }
  kernels::Status After(kernels::Operators& lane, const std::string& name) override {
    const kernels::Status status = lane.Synchronize();
    seconds_[name] += SecondsNow() - start_;
    return status;
  }

 private:
  double start_ = 0;
  std::map<std::string, double> seconds_;
};

// Passes every call on; products that may run as one stay one call.
class ObservedOperators final : public kernels::Operators {
 public:
  using Status = kernels::Status;

  // The observer may be nullptr, and outlives the lane.
  ObservedOperators(kernels::Operators* lane, OperatorObserver* observer)
      : lane_(lane), observer_(observer) {}
  ObservedOperators(std::unique_ptr<kernels::Operators> lane, OperatorObserver* observer)
      : owned_(std::move(lane)), lane_(owned_.get()), observer_(observer) {}
  void Observe(OperatorObserver* observer) { observer_ = observer; }

  Status Embedding(const kernels::EmbeddingParams& p) override {
    return Around("embedding", [&] { return lane_->Embedding(p); });
  }
  Status MatMul(const kernels::MatMulParams& p) override {
    return Around(ProductName(p), [&] { return lane_->MatMul(p); });
  }
  Status MatMuls(std::span<const kernels::MatMulParams> products) override {
    std::string name;
    for (const kernels::MatMulParams& p : products)
      name += (name.empty() ? "" : ", ") + ProductName(p);
    return Around(name, [&] { return lane_->MatMuls(products); });
  }
  // In two where it would run so.
  Status MatMulShortConv(const kernels::MatMulShortConvParams& p) override {
    if (!p.product.step) return kernels::Operators::MatMulShortConv(p);
    return Around(ProductName(p.product) + " with short convolution",
                  [&] { return lane_->MatMulShortConv(p); });
  }
  Status RmsNorm(const kernels::RmsNormParams& p) override {
    return Around(p.gate.data != nullptr ? "gated norm" : "norm",
                  [&] { return lane_->RmsNorm(p); });
  }
  Status ShortConv(const kernels::ShortConvParams& p) override {
    return Around("short convolution", [&] { return lane_->ShortConv(p); });
  }
  Status ConvTail(const kernels::ConvTailParams& p) override {
    return Around("convolution tail", [&] { return lane_->ConvTail(p); });
  }
  Status SwiGlu(const kernels::SwiGluParams& p) override {
    return Around("swiglu", [&] { return lane_->SwiGlu(p); });
  }
  Status MatMulSwiGlu(const kernels::MatMulSwiGluParams& p) override {
    return Around(ProductName(p.gate_up) + " with swiglu", [&] { return lane_->MatMulSwiGlu(p); });
  }
  Status StartMatMulShortConv(const kernels::MatMulShortConvParams& p) override {
    return Around(ProductName(p.product) + " with convolution",
                  [&] { return lane_->StartMatMulShortConv(p); });
  }
  Status FinishMatMulShortConv(const kernels::MatMulShortConvParams& p) override {
    return Around("convolution after its product", [&] { return lane_->FinishMatMulShortConv(p); });
  }
  Status MatMulGatedNorm(const kernels::MatMulGatedNormParams& p) override {
    return Around(ProductName(p.gate) + " with gated norm",
                  [&] { return lane_->MatMulGatedNorm(p); });
  }
  Status DeltaRuleForward(const kernels::DeltaRuleForwardParams& p) override {
    return Around("delta rule", [&] { return lane_->DeltaRuleForward(p); });
  }
  Status DeltaRuleSummary(const kernels::DeltaRuleSummaryParams& p) override {
    return Around("delta rule summary", [&] { return lane_->DeltaRuleSummary(p); });
  }
  Status LatentAppend(const kernels::LatentAppendParams& p) override {
    return Around("latent append", [&] { return lane_->LatentAppend(p); });
  }
  Status LatentPrefill(const kernels::LatentPrefillParams& p) override {
    return Around("latent prefill", [&] { return lane_->LatentPrefill(p); });
  }
  Status MixtureOfExperts(const kernels::MixtureParams& p) override {
    return Around("mixture of experts", [&] { return lane_->MixtureOfExperts(p); });
  }
  Status DeltaRuleStep(const kernels::DeltaRuleStepParams& p) override {
    return Around("delta rule step", [&] { return lane_->DeltaRuleStep(p); });
  }
  Status LatentStep(const kernels::LatentStepParams& p) override {
    return Around("latent step", [&] { return lane_->LatentStep(p); });
  }
  Status Copy(void* to, const void* from, size_t bytes) override {
    return Around("copy on the device", [&] { return lane_->Copy(to, from, bytes); });
  }
  Status CopyFromHost(void* to, const void* from, size_t bytes) override {
    return Around("copy to the device", [&] { return lane_->CopyFromHost(to, from, bytes); });
  }
  Status CopyToHost(void* to, const void* from, size_t bytes) override {
    return Around("copy to the host", [&] { return lane_->CopyToHost(to, from, bytes); });
  }
  Status FillZero(void* to, size_t bytes) override {
    return Around("fill", [&] { return lane_->FillZero(to, bytes); });
  }
  Status Synchronize() override { return lane_->Synchronize(); }
  Status Mark(std::unique_ptr<kernels::LanePoint>* point) override { return lane_->Mark(point); }
  Status BeginRecording() override { return lane_->BeginRecording(); }
  Status EndRecording(std::unique_ptr<kernels::Recording>* out) override {
    return lane_->EndRecording(out);
  }
  Status Replay(kernels::Recording& recording, std::span<const uint32_t> tokens) override {
    return lane_->Replay(recording, tokens);
  }

 private:
  static std::string ProductName(const kernels::MatMulParams& p) {
    return "product [" + std::to_string(p.weight->out_features()) + ", " +
           std::to_string(p.weight->in_features()) + "]";
  }

  template <typename Name, typename Call>
  Status Around(const Name& name, Call call) {
    if (observer_ == nullptr) return call();
    if (observer_->Omits(name)) return {};
    if (Status s = observer_->Before(*lane_, name); !s.ok()) return s;
    if (Status s = call(); !s.ok()) return s;
    return observer_->After(*lane_, name);
  }

  const std::unique_ptr<kernels::Operators> owned_;
  kernels::Operators* const lane_;
  OperatorObserver* observer_;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_BENCH_OBSERVED_OPERATORS_H_
