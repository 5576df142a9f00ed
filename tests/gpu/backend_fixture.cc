#include "tests/gpu/backend_fixture.h"

#include <algorithm>

#include "kernels/cpu/dtype_conversion.h"

namespace deltafill::test {
namespace {

struct OpenedBackend {
  kernels::Status status;
  std::unique_ptr<kernels::Backend> backend;

  OpenedBackend() {
    status = kernels::NewCudaBackend({.compute_dtype = kernels::DType::kBF16}, &backend);
    if (!status.ok()) std::printf("NO CUDA DEVICE: %s\n", status.message().c_str());
  }
};

}  // namespace

std::vector<uint16_t> ToBf16Bits(std::span<const float> values) {
  std::vector<uint16_t> bits;
  bits.reserve(values.size());
  for (float x : values) bits.push_back(kernels::cpu::ToBf16(x).bits);
  return bits;
}

std::vector<float> FromBf16Bits(std::span<const uint16_t> bits) {
  std::vector<float> values;
  values.reserve(bits.size());
  for (uint16_t x : bits) values.push_back(kernels::cpu::ToFloat(kernels::cpu::Bf16{x}));
  return values;
}

std::vector<float> Bf16Normal(Random* random, int64_t count, double scale) {
  // A stretch repeated: a length that no row's is a multiple of, and quick to make.
  constexpr int64_t kStretch = (1 << 20) + 77;
  std::vector<float> values =
      FromBf16Bits(ToBf16Bits(random->NormalVector(std::min(count, kStretch), scale)));
  values.reserve(static_cast<size_t>(count));
  while (static_cast<int64_t>(values.size()) < count) {
    values.push_back(values[values.size() - kStretch]);
  }
  return values;
}

void CudaBackendTest::SetUp() {
  static OpenedBackend opened;
  if (!opened.status.ok()) {
    if (DeviceIsRequired()) FAIL() << opened.status.message();
    GTEST_SKIP() << "no CUDA device: " << opened.status.message();
  }
  backend_ = opened.backend.get();
  Must(backend_->NewOperators(1, &lane_));
}

}  // namespace deltafill::test
