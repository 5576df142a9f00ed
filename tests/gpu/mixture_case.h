// Random mixtures of experts on the device, with the float64 reference of the same bf16 numbers.
#ifndef DELTAFILL_TESTS_GPU_MIXTURE_CASE_H_
#define DELTAFILL_TESTS_GPU_MIXTURE_CASE_H_

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/mixture.h"
#include "tests/gpu/backend_fixture.h"
#include "tests/testing/mixture_reference.h"

namespace deltafill::test {

struct MixtureSizes {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t hidden = 0;
  int64_t width = 0;
};

// Weights that bf16 holds exactly; inner rows are rounded to bf16 as the device does.
MixtureReference RandomMixture(const MixtureSizes& sizes, Random* random);

// By row; empty where the choice of experts is a near-tie, which fp32 may break the other way.
using ExpectedRows = std::vector<std::vector<double>>;
// Of every `step`-th row of x [rows, hidden]; the others are left empty.
ExpectedRows ExpectRows(const MixtureReference& mixture, std::span<const float> x,
                        int64_t step = 1);
void ExpectClose(const ExpectedRows& expected, std::span<const float> y, const std::string& what);

// One way to compute: the operator's own, or a path of it that this card would not take.
struct MixturePath {
  std::string name;
  kernels::cuda::MixtureTuning tuning;
};
// Those that the device has; DELTAFILL_TEST_MIXTURE_PATH leaves only the one of that name.
std::vector<MixturePath> MixturePaths(const kernels::cuda::DeviceTraits& device);

// Runs mixtures through every path.
class MixtureTest : public CudaBackendTest {
 protected:
  // A mixture's weights on the device.
  struct Loaded {
    const MixtureReference* reference = nullptr;
    std::vector<std::unique_ptr<kernels::Weight>> matrices;
    std::vector<kernels::ExpertWeights> experts;
    std::unique_ptr<BackendBuffer> router, bias;

    kernels::MixtureParams Params(const kernels::ConstRows& x, const kernels::MutableRows& y,
                                  int64_t rows) const;
  };

  void SetUp() override;
  Loaded Load(const MixtureReference& mixture);

  // y after the mixture of rows x [rows, hidden] was added to `before` (zeros if empty). `padding`
  // elements of NaN lie between rows of x and y, and must stay in y.
  std::vector<float> Run(const Loaded& loaded, const MixturePath& path, std::span<const float> x,
                         std::span<const float> before = {}, bool step = false,
                         int64_t padding = 0);

  kernels::cuda::DeviceTraits device_;
  std::vector<MixturePath> paths_;
  kernels::cuda::Stream stream_;
  kernels::cuda::MixtureWorkspace workspace_;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_GPU_MIXTURE_CASE_H_
