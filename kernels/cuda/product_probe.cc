#include "kernels/cuda/product_probe.h"

#include <algorithm>
#include <string>

namespace deltafill::kernels::cuda {
namespace {

constexpr size_t kBaseCandidates = 48;
constexpr size_t kClassCandidates = 4;

// The probe's rows and what the base algorithm made of them. Sums are compared twice: rounded to
// y's dtype, and what is left of them after the rounded sum is subtracted, which shows the bits
// that rounding to bf16 hides, on the path of residual connections.
class Probe {
 public:
  Probe(const ProductLibrary& library, const ProductPurpose& purpose, cudaStream_t stream)
      : library_(library),
        purpose_(purpose),
        plan_(PlanProbe(purpose.out_features)),
        stream_(stream),
        word_bytes_(static_cast<int>(SizeOf(purpose.y_dtype))),
        y_stride_((purpose.out_features + 7) / 8 * 8) {}

  const ProbePlan& plan() const { return plan_; }

  Status Prepare() {
    const size_t y_bytes = static_cast<size_t>(plan_.rows * y_stride_) * SizeOf(purpose_.y_dtype);
    const int64_t inputs = plan_.rows * purpose_.in_features;
    if (Status s = x_.Reserve(static_cast<size_t>(inputs) * 2, stream_); !s.ok()) return s;
    for (DeviceBuffer* buffer : {&sums_, &rests_, &tried_}) {
      if (Status s = buffer->Reserve(y_bytes, stream_); !s.ok()) return s;
      if (Status s =
              FromCuda(cudaMemsetAsync(buffer->as<void>(), 0, y_bytes, stream_), "cudaMemsetAsync");
          !s.ok()) {
        return s;
      }
    }
    if (Status s = differences_.Reserve(sizeof(unsigned long long), stream_); !s.ok()) return s;
    if (Status s = workspace_.Reserve(kProductWorkspaceBytes, stream_); !s.ok()) return s;
    return FromCuda(FillUniform(x_.as<void>(), inputs, 0, 1.0f, stream_), "probe input");
  }

  // Makes `base`'s sums the reference.
  Status SetBase(const PinnedAlgorithm& base) {
    const ProbeCall all = {0, plan_.rows};
    if (Status s = Run(base, all, sums_, false); !s.ok()) return s;
    if (Status s = Negate(all, rests_); !s.ok()) return s;
    return Run(base, all, rests_, true);
  }

  // Whether the algorithm gives the reference's bits in all calls; an error of the library means
  // that it does not.
  Status Try(const PinnedAlgorithm& algorithm, const std::vector<ProbeCall>& calls, bool* equal) {
    *equal = false;
    if (Status s = FromCuda(
            cudaMemsetAsync(differences_.as<void>(), 0, sizeof(unsigned long long), stream_),
            "cudaMemsetAsync");
        !s.ok()) {
      return s;
    }
    for (const ProbeCall& call : calls) {
      if (!Run(algorithm, call, tried_, false).ok()) return {};
      if (Status s = Compare(call, sums_); !s.ok()) return s;
      if (Status s = Negate(call, tried_); !s.ok()) return s;
      if (!Run(algorithm, call, tried_, true).ok()) return {};
      if (Status s = Compare(call, rests_); !s.ok()) return s;
    }
    unsigned long long differences = 0;
    if (Status s = FromCuda(cudaMemcpyAsync(&differences, differences_.as<void>(),
                                            sizeof(differences), cudaMemcpyDeviceToHost, stream_),
                            "cudaMemcpyAsync");
        !s.ok()) {
      return s;
    }
    if (Status s = FromCuda(cudaStreamSynchronize(stream_), "the probe of a product"); !s.ok()) {
      return s;
    }
    *equal = differences == 0;
    return {};
  }

  ProductOperands Operands(int64_t rows) const {
    ProductOperands operands;
    operands.w = purpose_.w;
    operands.out_features = purpose_.out_features;
    operands.in_features = purpose_.in_features;
    operands.x_stride = purpose_.in_features;
    operands.y_dtype = purpose_.y_dtype;
    operands.y_stride = y_stride_;
    operands.rows = rows;
    return operands;
  }

 private:
  uint8_t* RowOf(const DeviceBuffer& y, int64_t row) const {
    return y.as<uint8_t>() + row * y_stride_ * word_bytes_;
  }

  // Into the first rows of `y`.
  Status Run(const PinnedAlgorithm& algorithm, const ProbeCall& call, const DeviceBuffer& y,
             bool accumulate) {
    ProductOperands operands = Operands(call.rows);
    operands.x = x_.as<uint8_t>() + call.first_row * purpose_.in_features * 2;
    operands.y = y.as<void>();
    operands.accumulate = accumulate;
    return RunProduct(library_, operands, algorithm, {workspace_.as<void>(), workspace_.bytes()},
                      stream_);
  }

  // The first rows of `y` become minus the call's reference sums.
  Status Negate(const ProbeCall& call, const DeviceBuffer& y) {
    return FromCuda(NegateWords(RowOf(sums_, call.first_row), y.as<void>(), call.rows * y_stride_,
                                word_bytes_, stream_),
                    "probe");
  }

  Status Compare(const ProbeCall& call, const DeviceBuffer& reference) {
    return FromCuda(CountDifferences(tried_.as<void>(), RowOf(reference, call.first_row), call.rows,
                                     purpose_.out_features, y_stride_, word_bytes_,
                                     differences_.as<unsigned long long>(), stream_),
                    "probe");
  }

  const ProductLibrary& library_;
  const ProductPurpose& purpose_;
  const ProbePlan plan_;
  const cudaStream_t stream_;
  const int word_bytes_;
  const int64_t y_stride_;
  DeviceBuffer x_, sums_, rests_, tried_, differences_, workspace_;
};

// The first candidate whose bits agree with themselves in every call of every class.
Status PinBase(const ProductLibrary& library, const ProductPurpose& purpose, Probe* probe,
               PinnedAlgorithm* out) {
  const int64_t tuned = kRowClasses.back().tuned_rows;
  std::vector<PinnedAlgorithm> candidates;
  if (Status s = ListAlgorithms(library, probe->Operands(tuned), &candidates); !s.ok()) {
    return s;
  }
  std::vector<ProbeCall> calls;
  for (const auto& of_class : probe->plan().calls) {
    calls.insert(calls.end(), of_class.begin(), of_class.end());
  }
  for (size_t i = 0; i < std::min(candidates.size(), kBaseCandidates); ++i) {
    if (!probe->SetBase(candidates[i]).ok()) continue;
    bool equal = false;
    if (Status s = probe->Try(candidates[i], calls, &equal); !s.ok()) return s;
    if (!equal) continue;
    *out = candidates[i];
    return {};
  }
  return {StatusCode::kUnsupported, "weight [" + std::to_string(purpose.out_features) + ", " +
                                        std::to_string(purpose.in_features) +
                                        "]: none of cuBLASLt's " +
                                        std::to_string(candidates.size()) +
                                        " algorithms gives a row the same bits in every call"};
}

}  // namespace

Status PinAlgorithms(const ProductLibrary& library, const ProductPurpose& purpose,
                     cudaStream_t stream, PinnedClasses* out) {
  Probe probe(library, purpose, stream);
  if (Status s = probe.Prepare(); !s.ok()) return s;
  PinnedAlgorithm base;
  if (Status s = PinBase(library, purpose, &probe, &base); !s.ok()) return s;
  out->fill(base);
  for (size_t c = 0; c + 1 < kRowClassCount; ++c) {
    const std::vector<ProbeCall>& calls = probe.plan().calls[c];
    if (calls.empty()) continue;
    std::vector<PinnedAlgorithm> candidates;
    const int64_t tuned = kRowClasses[c].tuned_rows;
    if (Status s = ListAlgorithms(library, probe.Operands(tuned), &candidates); !s.ok()) {
      return s;
    }
    for (size_t i = 0; i < std::min(candidates.size(), kClassCandidates); ++i) {
      bool equal = candidates[i].description == base.description;
      if (!equal) {
        if (Status s = probe.Try(candidates[i], calls, &equal); !s.ok()) return s;
      }
      if (!equal) continue;
      (*out)[c] = candidates[i];
      break;
    }
  }
  return {};
}

}  // namespace deltafill::kernels::cuda
