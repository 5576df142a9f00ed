// Operators of a fake device: params with addresses as the CPU backend needs them and arrays of
// their own, for callers use theirs again as soon as a call returns.
#include <algorithm>
#include <string>
#include <utility>

#include "tests/testing/fake_device.h"
#include "tests/testing/fake_device_lane.h"

namespace deltafill::test {
namespace {

using kernels::ConstRows;
using kernels::LatentSequence;
using kernels::MutableRows;
using kernels::Status;
using kernels::StatusCode;

// Collects what a call's pointers should be.
class Addresses {
 public:
  template <typename T>
  T* Of(T* address) {
    if (address != nullptr && !IsDeviceAddress(address)) all_on_device_ = false;
    return BehindAddress(address);
  }
  ConstRows Of(const ConstRows& rows) { return {Of(rows.data), rows.dtype, rows.row_stride}; }
  MutableRows Of(const MutableRows& rows) { return {Of(rows.data), rows.dtype, rows.row_stride}; }
  kernels::DeltaRuleInputs Of(const kernels::DeltaRuleInputs& in) {
    return {Of(in.q), Of(in.k), Of(in.v), Of(in.f), Of(in.beta), Of(in.a_log), Of(in.dt_bias)};
  }
  template <typename T>
  std::vector<T*> Array(T* const* addresses, size_t count) {
    std::vector<T*> array;
    for (size_t i = 0; addresses != nullptr && i < count; ++i) array.push_back(Of(addresses[i]));
    return array;
  }

  Status Check(const char* call) const {
    if (all_on_device_) return {};
    return {StatusCode::kInternal, std::string(call) + ": an address of the host's memory"};
  }

 private:
  bool all_on_device_ = true;
};

// Latent sequences with page arrays of their own.
class HeldSequences {
 public:
  HeldSequences(std::span<const LatentSequence> sequences, Addresses& addresses) {
    for (const LatentSequence& sequence : sequences) {
      pages_.push_back(addresses.Array(sequence.pages.data(), sequence.pages.size()));
      sequences_.push_back({{}, sequence.first_token});
    }
    for (size_t i = 0; i < sequences_.size(); ++i) sequences_[i].pages = pages_[i];
  }
  HeldSequences(const HeldSequences&) = delete;
  HeldSequences& operator=(const HeldSequences&) = delete;
  std::span<const LatentSequence> get() const { return sequences_; }

 private:
  std::vector<std::vector<void*>> pages_;
  std::vector<LatentSequence> sequences_;
};

std::vector<int64_t> Held(kernels::SequenceOffsets offsets) {
  return {offsets.begin(), offsets.end()};
}

template <typename T>
T* const* StartOf(const std::vector<T*>& array) {
  return array.empty() ? nullptr : array.data();
}

}  // namespace

Status FakeDeviceLane::Embedding(const kernels::EmbeddingParams& params) {
  Addresses addresses;
  kernels::EmbeddingParams p = params;
  p.y = addresses.Of(params.y);
  if (Status s = addresses.Check("Embedding"); !s.ok()) return s;
  std::vector<uint32_t> own(params.tokens.begin(), params.tokens.end());
  return Issue([this, p, own](std::span<const uint32_t> tokens) mutable {
    p.tokens = tokens.empty() ? std::span<const uint32_t>(own) : tokens;
    return cpu_->Embedding(p);
  });
}

Status FakeDeviceLane::MatMul(const kernels::MatMulParams& params) {
  Addresses addresses;
  kernels::MatMulParams p = params;
  p.x = addresses.Of(params.x);
  p.bias = addresses.Of(params.bias);
  p.y = addresses.Of(params.y);
  if (Status s = addresses.Check("MatMul"); !s.ok()) return s;
  return Issue([this, p](auto) { return cpu_->MatMul(p); });
}

Status FakeDeviceLane::RmsNorm(const kernels::RmsNormParams& params) {
  Addresses addresses;
  kernels::RmsNormParams p = params;
  p.x = addresses.Of(params.x);
  p.weight = addresses.Of(params.weight);
  p.gate = addresses.Of(params.gate);
  p.y = addresses.Of(params.y);
  if (Status s = addresses.Check("RmsNorm"); !s.ok()) return s;
  return Issue([this, p](auto) { return cpu_->RmsNorm(p); });
}

Status FakeDeviceLane::ShortConv(const kernels::ShortConvParams& params) {
  Addresses addresses;
  kernels::ShortConvParams p = params;
  p.x = addresses.Of(params.x);
  p.weight = addresses.Of(params.weight);
  p.y = addresses.Of(params.y);
  const size_t sequences = params.offsets.size() - 1;
  auto offsets = Held(params.offsets);
  auto tails_in = addresses.Array(params.tails_in, sequences);
  auto tails_out = addresses.Array(params.tails_out, sequences);
  if (Status s = addresses.Check("ShortConv"); !s.ok()) return s;
  return Issue([this, p, offsets, tails_in, tails_out](auto) mutable {
    p.offsets = offsets;
    p.tails_in = StartOf(tails_in);
    p.tails_out = StartOf(tails_out);
    return cpu_->ShortConv(p);
  });
}

Status FakeDeviceLane::ConvTail(const kernels::ConvTailParams& params) {
  Addresses addresses;
  kernels::ConvTailParams p = params;
  p.x = addresses.Of(params.x);
  p.tail_in = addresses.Of(params.tail_in);
  p.tail_out = addresses.Of(params.tail_out);
  if (Status s = addresses.Check("ConvTail"); !s.ok()) return s;
  return Issue([this, p](auto) { return cpu_->ConvTail(p); });
}

Status FakeDeviceLane::SwiGlu(const kernels::SwiGluParams& params) {
  Addresses addresses;
  kernels::SwiGluParams p = params;
  p.gate = addresses.Of(params.gate);
  p.up = addresses.Of(params.up);
  p.y = addresses.Of(params.y);
  if (Status s = addresses.Check("SwiGlu"); !s.ok()) return s;
  return Issue([this, p](auto) { return cpu_->SwiGlu(p); });
}

Status FakeDeviceLane::DeltaRuleForward(const kernels::DeltaRuleForwardParams& params) {
  if (Status s = RefuseInRecording("DeltaRuleForward"); !s.ok()) return s;
  Addresses addresses;
  kernels::DeltaRuleForwardParams p = params;
  p.in = addresses.Of(params.in);
  p.o = addresses.Of(params.o);
  const size_t sequences = params.offsets.size() - 1;
  auto offsets = Held(params.offsets);
  auto initial = addresses.Array(params.initial_states, sequences);
  auto final = addresses.Array(params.final_states, sequences);
  std::vector<kernels::StateCheckpoint> checkpoints;
  for (kernels::StateCheckpoint checkpoint : params.checkpoints) {
    checkpoint.state = addresses.Of(checkpoint.state);
    checkpoints.push_back(checkpoint);
  }
  if (Status s = addresses.Check("DeltaRuleForward"); !s.ok()) return s;
  return Issue([this, p, offsets, initial, final, checkpoints](auto) mutable {
    p.offsets = offsets;
    p.initial_states = StartOf(initial);
    p.final_states = StartOf(final);
    p.checkpoints = checkpoints;
    return cpu_->DeltaRuleForward(p);
  });
}

Status FakeDeviceLane::DeltaRuleSummary(const kernels::DeltaRuleSummaryParams& params) {
  Addresses addresses;
  kernels::DeltaRuleSummaryParams p = params;
  p.in = addresses.Of(params.in);
  p.m = addresses.Of(params.m);
  p.b = addresses.Of(params.b);
  if (Status s = addresses.Check("DeltaRuleSummary"); !s.ok()) return s;
  return Issue([this, p](auto) { return cpu_->DeltaRuleSummary(p); });
}

Status FakeDeviceLane::DeltaRuleStep(const kernels::DeltaRuleStepParams& params) {
  Addresses addresses;
  kernels::DeltaRuleStepParams p = params;
  p.in = addresses.Of(params.in);
  p.o = addresses.Of(params.o);
  auto states = addresses.Array(params.states, static_cast<size_t>(params.batch));
  if (Status s = addresses.Check("DeltaRuleStep"); !s.ok()) return s;
  return Issue([this, p, states](auto) mutable {
    p.states = StartOf(states);
    return cpu_->DeltaRuleStep(p);
  });
}

Status FakeDeviceLane::LatentAppend(const kernels::LatentAppendParams& params) {
  if (Status s = RefuseInRecording("LatentAppend"); !s.ok()) return s;
  Addresses addresses;
  kernels::LatentAppendParams p = params;
  p.x = addresses.Of(params.x);
  p.norm_weight = addresses.Of(params.norm_weight);
  auto offsets = Held(params.offsets);
  const auto sequences = std::make_shared<HeldSequences>(params.sequences, addresses);
  if (Status s = addresses.Check("LatentAppend"); !s.ok()) return s;
  return Issue([this, p, offsets, sequences](auto) mutable {
    p.offsets = offsets;
    p.sequences = sequences->get();
    return cpu_->LatentAppend(p);
  });
}

Status FakeDeviceLane::LatentPrefill(const kernels::LatentPrefillParams& params) {
  if (Status s = RefuseInRecording("LatentPrefill"); !s.ok()) return s;
  Addresses addresses;
  kernels::LatentPrefillParams p = params;
  p.q = addresses.Of(params.q);
  p.o = addresses.Of(params.o);
  auto offsets = Held(params.offsets);
  const auto sequences = std::make_shared<HeldSequences>(params.sequences, addresses);
  if (Status s = addresses.Check("LatentPrefill"); !s.ok()) return s;
  return Issue([this, p, offsets, sequences](auto) mutable {
    p.offsets = offsets;
    p.sequences = sequences->get();
    return cpu_->LatentPrefill(p);
  });
}

Status FakeDeviceLane::LatentStep(const kernels::LatentStepParams& params) {
  if (Status s = RefuseInRecording("LatentStep"); !s.ok()) return s;
  Addresses addresses;
  kernels::LatentStepParams p = params;
  p.q = addresses.Of(params.q);
  p.o = addresses.Of(params.o);
  const auto sequences = std::make_shared<HeldSequences>(params.sequences, addresses);
  if (Status s = addresses.Check("LatentStep"); !s.ok()) return s;
  return Issue([this, p, sequences](auto) mutable {
    p.sequences = sequences->get();
    return cpu_->LatentStep(p);
  });
}

Status FakeDeviceLane::MixtureOfExperts(const kernels::MixtureParams& params) {
  Addresses addresses;
  kernels::MixtureParams p = params;
  p.x = addresses.Of(params.x);
  p.router = addresses.Of(params.router);
  p.correction_bias = addresses.Of(params.correction_bias);
  p.y = addresses.Of(params.y);
  std::vector<kernels::ExpertWeights> experts(params.experts.begin(), params.experts.end());
  if (Status s = addresses.Check("MixtureOfExperts"); !s.ok()) return s;
  return Issue([this, p, experts](auto) mutable {
    p.experts = experts;
    return cpu_->MixtureOfExperts(p);
  });
}

Status FakeDeviceLane::Copy(void* to, const void* from, size_t bytes) {
  Addresses addresses;
  void* const to_memory = addresses.Of(to);
  const void* const from_memory = addresses.Of(from);
  if (Status s = addresses.Check("Copy"); !s.ok()) return s;
  return Issue([=, this](auto) { return cpu_->Copy(to_memory, from_memory, bytes); });
}

Status FakeDeviceLane::CopyFromHost(void* to, const void* host_from, size_t bytes) {
  if (Status s = RefuseInRecording("CopyFromHost"); !s.ok()) return s;
  Addresses addresses;
  void* const to_memory = addresses.Of(to);
  if (Status s = addresses.Check("CopyFromHost"); !s.ok()) return s;
  if (IsDeviceAddress(host_from)) return {StatusCode::kInternal, "host_from: a device address"};
  return Issue([=, this](auto) { return cpu_->CopyFromHost(to_memory, host_from, bytes); });
}

Status FakeDeviceLane::CopyToHost(void* host_to, const void* from, size_t bytes) {
  if (Status s = RefuseInRecording("CopyToHost"); !s.ok()) return s;
  Addresses addresses;
  const void* const from_memory = addresses.Of(from);
  if (Status s = addresses.Check("CopyToHost"); !s.ok()) return s;
  if (IsDeviceAddress(host_to)) return {StatusCode::kInternal, "host_to: a device address"};
  return Issue([=, this](auto) { return cpu_->CopyToHost(host_to, from_memory, bytes); });
}

Status FakeDeviceLane::FillZero(void* to, size_t bytes) {
  Addresses addresses;
  void* const memory = addresses.Of(to);
  if (Status s = addresses.Check("FillZero"); !s.ok()) return s;
  return Issue([=, this](auto) { return cpu_->FillZero(memory, bytes); });
}

}  // namespace deltafill::test
