// Times whole stacks of layers and their operators on the CUDA backend.
#ifndef DELTAFILL_TESTS_BENCH_WALK_TIMING_H_
#define DELTAFILL_TESTS_BENCH_WALK_TIMING_H_

#include <chrono>
#include <map>
#include <string>

#include "tests/gpu/layer_walk.h"

namespace deltafill::test {

inline double SecondsNow() {
  using std::chrono::duration;
  return duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Passes every call on and waits for it: seconds by operator, each with a few microseconds of
// waiting, so their sum is above an undisturbed run's.
class TimedOperators final : public kernels::Operators {
 public:
  explicit TimedOperators(kernels::Operators* lane) : lane_(lane) {}
  const std::map<std::string, double>& seconds() const { return seconds_; }

  using Status = kernels::Status;
  Status Embedding(const kernels::EmbeddingParams& p) override {
    return Time("embedding", [&] { return lane_->Embedding(p); });
  }
  Status MatMul(const kernels::MatMulParams& p) override {
    return Time("product [" + std::to_string(p.weight->out_features()) + ", " +
                    std::to_string(p.weight->in_features()) + "]",
                [&] { return lane_->MatMul(p); });
  }
  Status RmsNorm(const kernels::RmsNormParams& p) override {
    return Time(p.gate.data != nullptr ? "gated norm" : "norm", [&] { return lane_->RmsNorm(p); });
  }
  Status ShortConv(const kernels::ShortConvParams& p) override {
    return Time("short convolution", [&] { return lane_->ShortConv(p); });
  }
  Status ConvTail(const kernels::ConvTailParams& p) override {
    return Time("convolution tail", [&] { return lane_->ConvTail(p); });
  }
  Status SwiGlu(const kernels::SwiGluParams& p) override {
    return Time("swiglu", [&] { return lane_->SwiGlu(p); });
  }
  Status DeltaRuleForward(const kernels::DeltaRuleForwardParams& p) override {
    return Time("delta rule", [&] { return lane_->DeltaRuleForward(p); });
  }
  Status DeltaRuleSummary(const kernels::DeltaRuleSummaryParams& p) override {
    return Time("delta rule summary", [&] { return lane_->DeltaRuleSummary(p); });
  }
  Status LatentAppend(const kernels::LatentAppendParams& p) override {
    return Time("latent append", [&] { return lane_->LatentAppend(p); });
  }
  Status LatentPrefill(const kernels::LatentPrefillParams& p) override {
    return Time("latent prefill", [&] { return lane_->LatentPrefill(p); });
  }
  Status MixtureOfExperts(const kernels::MixtureParams& p) override {
    return Time("mixture of experts", [&] { return lane_->MixtureOfExperts(p); });
  }
  Status DeltaRuleStep(const kernels::DeltaRuleStepParams& p) override {
    return Time("delta rule step", [&] { return lane_->DeltaRuleStep(p); });
  }
  Status LatentStep(const kernels::LatentStepParams& p) override {
    return Time("latent step", [&] { return lane_->LatentStep(p); });
  }
  Status Synchronize() override { return lane_->Synchronize(); }
  Status Mark(std::unique_ptr<kernels::LanePoint>* point) override { return lane_->Mark(point); }
  Status Copy(void* to, const void* from, size_t bytes) override {
    return Time("copy on the device", [&] { return lane_->Copy(to, from, bytes); });
  }
  Status CopyFromHost(void* to, const void* from, size_t bytes) override {
    return Time("copy to the device", [&] { return lane_->CopyFromHost(to, from, bytes); });
  }
  Status CopyToHost(void* to, const void* from, size_t bytes) override {
    return Time("copy to the host", [&] { return lane_->CopyToHost(to, from, bytes); });
  }
  Status FillZero(void* to, size_t bytes) override {
    return Time("fill", [&] { return lane_->FillZero(to, bytes); });
  }

 private:
  template <typename Call>
  Status Time(const std::string& name, Call call) {
    if (Status s = lane_->Synchronize(); !s.ok()) return s;
    const double start = SecondsNow();
    if (Status s = call(); !s.ok()) return s;
    Status status = lane_->Synchronize();
    seconds_[name] += SecondsNow() - start;
    return status;
  }

  kernels::Operators* const lane_;
  std::map<std::string, double> seconds_;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_BENCH_WALK_TIMING_H_
