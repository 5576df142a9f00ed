// The mixture of experts and latent attention on a CUDA device at the sizes of Kimi-Linear-48B
// (hidden 2304, 8 of 256 experts of width 1024; 32 heads of 128 + 64, values 128, rank 512), with
// random weights, as fractions of the 8,192-cubed product's rate measured in the same run.
//
//   hybrid_cuda_bench experts [ROWS...]   prefill and decoding steps
//   hybrid_cuda_bench latent              prefill after so many tokens, and steps
//
// FLOP counted are those the equations need: 6 * 2304 * 1024 a row and expert chosen; 2 (192 + 128)
// a row, head and key it sees; 2 * 512 * 256 a key and head, once a call.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/mixture.h"
#include "tests/bench/observed_operators.h"
#include "tests/gpu/backend_fixture.h"

namespace deltafill::test {
namespace {

using kernels::DType;
using kernels::cuda::MixtureTuning;

constexpr int kExperts = 256, kTopK = 8, kHeads = 32;
constexpr int64_t kHidden = 2304, kWidth = 1024;

struct Opened {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<kernels::Operators> lane;
  kernels::cuda::DeviceTraits device;
  kernels::cuda::Stream stream;
  uint64_t seed = 1;

  Opened() {
    Must(kernels::NewCudaBackend({.compute_dtype = DType::kBF16}, &backend));
    Must(backend->NewOperators(1, &lane));
    Must(kernels::cuda::SelectDevice(0));
    Must(kernels::cuda::ReadDeviceTraits(&device));
    Must(stream.Create());
  }

  std::unique_ptr<kernels::Weight> NewWeight(int64_t out, int64_t in) {
    std::unique_ptr<kernels::Weight> weight;
    const float limit = std::sqrt(3.0f / static_cast<float>(in));
    Must(backend->NewRandomWeight(++seed, limit, out, in, &weight));
    return weight;
  }
  BackendBuffer NewRows(int64_t count) {
    Random random(++seed);
    const std::vector<uint16_t> values = ToBf16Bits(Bf16Normal(&random, count));
    BackendBuffer buffer(backend.get(), values.size() * 2);
    Must(lane->CopyFromHost(buffer.as<void>(), values.data(), buffer.bytes()));
    Must(lane->Synchronize());
    return buffer;
  }
};

// Seconds a call takes, of many issued one after the other for about a tenth of a second.
template <typename Call, typename Wait>
double Seconds(const Call& call, const Wait& wait) {
  const auto run = [&](int count) {
    const double start = SecondsNow();
    for (int i = 0; i < count; ++i) call();
    wait();
    return (SecondsNow() - start) / count;
  };
  run(2);
  const double once = std::max(run(3), 1e-6);
  return run(std::clamp(static_cast<int>(0.1 / once), 3, 1000));
}

double ProductRate(Opened* opened, int64_t rows, int64_t out, int64_t in) {
  const auto weight = opened->NewWeight(out, in);
  const BackendBuffer x = opened->NewRows(rows * in);
  const BackendBuffer y(opened->backend.get(), static_cast<size_t>(rows * out) * 2);
  const double seconds = Seconds(
      [&] {
        Must(opened->lane->MatMul({.x = {x.as<void>(), DType::kBF16, in},
                                   .weight = weight.get(),
                                   .y = {y.as<void>(), DType::kBF16, out},
                                   .rows = rows}));
      },
      [&] { Must(opened->lane->Synchronize()); });
  return 2.0 * static_cast<double>(rows) * static_cast<double>(out * in) / seconds;
}

class ExpertBench {
 public:
  static constexpr int64_t kRowsMax = 16384;

  explicit ExpertBench(Opened* opened)
      : opened_(opened),
        router_(opened->backend.get(), kExperts * kHidden * 4),
        x_(opened->NewRows(kRowsMax * kHidden)),
        y_(opened->NewRows(kRowsMax * kHidden)) {
    for (int e = 0; e < kExperts; ++e) {
      matrices_.push_back(opened->NewWeight(2 * kWidth, kHidden));
      matrices_.push_back(opened->NewWeight(kHidden, kWidth));
      experts_.push_back({matrices_[matrices_.size() - 2].get(), matrices_.back().get()});
    }
    Random random(5);
    const auto router = random.NormalVector(kExperts * kHidden, 1.0 / std::sqrt(kHidden));
    Must(opened->lane->CopyFromHost(router_.as<void>(), router.data(), router_.bytes()));
    Must(opened->lane->Synchronize());
  }

  double Run(int64_t rows, bool step, const MixtureTuning& tuning) {
    const kernels::MixtureParams params = {.shape = {.experts = kExperts,
                                                     .top_k = kTopK,
                                                     .hidden = kHidden,
                                                     .expert_width = kWidth,
                                                     .routed_scale = 2.446f},
                                           .x = {x_.as<void>(), DType::kBF16, kHidden},
                                           .router = router_.as<float>(),
                                           .experts = experts_,
                                           .y = {y_.as<void>(), DType::kBF16, kHidden},
                                           .rows = rows,
                                           .step = step};
    const auto call = [&](const MixtureTuning& how) {
      Must(kernels::cuda::MixtureOfExperts(params, opened_->device, how, true, &workspace_,
                                           opened_->stream.get()));
    };
    call({});  // what products alone work on
    return Seconds([&] { call(tuning); }, [&] { Must(opened_->stream.Synchronize()); });
  }

 private:
  Opened* const opened_;
  BackendBuffer router_, x_, y_;
  std::vector<std::unique_ptr<kernels::Weight>> matrices_;
  std::vector<kernels::ExpertWeights> experts_;
  kernels::cuda::MixtureWorkspace workspace_;
};

void BenchExperts(const std::vector<int64_t>& row_counts) {
  Opened opened;
  const double rate = ProductRate(&opened, 8192, 8192, 8192);
  std::printf("dense: %.0f TFLOP/s at 8192 cubed, %.0f of 16384 rows by [2048, 2304]\n",
              rate * 1e-12, ProductRate(&opened, 16384, 2048, 2304) * 1e-12);
  ExpertBench bench(&opened);
  const struct {
    const char* name;
    MixtureTuning tuning;
  } ways[] = {{"all", {}},
              {"products", {.products_only = true}},
              {"products, pairs of CTAs", {.cluster = 2, .products_only = true}},
              {"products, CTAs alone", {.cluster = 1, .products_only = true}},
              {"routing", {.routing_only = true}},
              {"portable", {.force_portable = true}}};
  std::printf("| experts, rows | what | us | TFLOP/s | of dense | weights TB/s |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (int64_t rows : row_counts) {
    const bool step = rows <= 64;
    for (const auto& [name, tuning] : ways) {
      if (tuning.force_portable && rows != 8192) continue;
      const double seconds = bench.Run(rows, step, tuning);
      const double flop = static_cast<double>(rows * kTopK) * 6.0 * kHidden * kWidth;
      const double missed =
          std::pow(1.0 - static_cast<double>(kTopK) / kExperts, static_cast<double>(rows));
      const double bytes = kExperts * (1.0 - missed) * 6.0 * kHidden * kWidth;
      std::printf("| %ld%s | %s | %.1f |", rows, step ? ", step" : "", name, seconds * 1e6);
      if (tuning.routing_only) {
        std::printf(" | | |\n");
      } else {
        std::printf(" %.0f | %.0f %% | %.2f |\n", flop / seconds * 1e-12,
                    100.0 * flop / seconds / rate, bytes / seconds * 1e-12);
      }
      std::fflush(stdout);
    }
  }
}

// A layer with a random cache.
struct LatentLayer {
  LatentLayer(Opened* opened, int64_t tokens) {
    Random random(6);
    const auto w = random.NormalVector(kHeads * 256 * 512, 0.04);
    Must(opened->backend->NewLatentProjection(
        w.data(), DType::kF32,
        {.heads = kHeads, .nope_dim = 128, .rope_dim = 64, .value_dim = 128, .rank = 512},
        &projection));
    for (int64_t token = 0; token < tokens; token += kernels::kLatentPageTokens) {
      pages.push_back(opened->NewRows(kernels::kLatentPageTokens * 576));
      pointers.push_back(pages.back().as<void>());
    }
  }
  std::unique_ptr<kernels::LatentProjection> projection;
  std::vector<BackendBuffer> pages;
  std::vector<void*> pointers;
};

void BenchLatentPrefill(Opened* opened, const LatentLayer& layer, int64_t before, int64_t rows,
                        double rate) {
  const auto& shape = layer.projection->shape();
  const BackendBuffer q = opened->NewRows(rows * shape.QueryWidth());
  const BackendBuffer o(opened->backend.get(), static_cast<size_t>(rows * shape.OutputWidth()) * 2);
  const std::vector<int64_t> offsets = {0, rows};
  const kernels::LatentSequence sequence = {layer.pointers, before};
  const double seconds = Seconds(
      [&] {
        Must(opened->lane->LatentPrefill({.projection = layer.projection.get(),
                                          .q = {q.as<void>(), DType::kBF16, shape.QueryWidth()},
                                          .offsets = offsets,
                                          .sequences = {&sequence, 1},
                                          .o = {o.as<void>(), DType::kBF16, shape.OutputWidth()}}));
      },
      [&] { Must(opened->lane->Synchronize()); });
  const double pairs = static_cast<double>(rows) * static_cast<double>(before) +
                       0.5 * static_cast<double>(rows) * static_cast<double>(rows + 1);
  const double attention = pairs * kHeads * 2.0 * (192 + 128);
  const double expansion = static_cast<double>(before + rows) * kHeads * 2.0 * 512 * 256;
  std::printf("| prefill, %ld rows after %ld | %.0f | %.0f | %.0f %% | attention alone %.0f |\n",
              rows, before, seconds * 1e6, (attention + expansion) / seconds * 1e-12,
              100.0 * (attention + expansion) / seconds / rate, attention / seconds * 1e-12);
  std::fflush(stdout);
}

void BenchLatentStep(Opened* opened, const LatentLayer& layer, int64_t context, int64_t batch) {
  const auto& shape = layer.projection->shape();
  const BackendBuffer q = opened->NewRows(batch * shape.QueryWidth());
  const BackendBuffer o(opened->backend.get(),
                        static_cast<size_t>(batch * shape.OutputWidth()) * 2);
  // All read one cache.
  const std::vector<kernels::LatentSequence> sequences(static_cast<size_t>(batch),
                                                       {layer.pointers, context - 1});
  const double seconds = Seconds(
      [&] {
        Must(opened->lane->LatentStep({.projection = layer.projection.get(),
                                       .q = {q.as<void>(), DType::kBF16, shape.QueryWidth()},
                                       .sequences = sequences,
                                       .o = {o.as<void>(), DType::kBF16, shape.OutputWidth()}}));
      },
      [&] { Must(opened->lane->Synchronize()); });
  const double bytes = static_cast<double>(context * batch) * 576 * 2;
  const double flop = static_cast<double>(batch) * kHeads * 2.0 *
                      (static_cast<double>(context) * (576 + 512) + 512.0 * 256);
  std::printf("| step, batch %ld, %ld tokens | %.1f | %.1f | | cache %.2f TB/s |\n", batch, context,
              seconds * 1e6, flop / seconds * 1e-12, bytes / seconds * 1e-12);
  std::fflush(stdout);
}

void BenchLatent() {
  Opened opened;
  const double rate = ProductRate(&opened, 8192, 8192, 8192);
  std::printf("dense: %.0f TFLOP/s at 8192 cubed\n", rate * 1e-12);
  std::printf("| latent attention | us | TFLOP/s | of dense | |\n|---|---|---|---|---|\n");
  const LatentLayer layer(&opened, 131072);
  for (const auto& [before, rows] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 2048}, {0, 8192}, {32768, 8192}, {122880, 8192}}) {
    BenchLatentPrefill(&opened, layer, before, rows, rate);
  }
  BenchLatentStep(&opened, layer, 4096, 1);
  BenchLatentStep(&opened, layer, 131072, 1);
  BenchLatentStep(&opened, layer, 8192, 16);
  BenchLatentStep(&opened, layer, 8192, 64);
}

int Main(int argc, char** argv) {
  if (argc >= 2 && std::strcmp(argv[1], "experts") == 0) {
    std::vector<int64_t> rows;
    for (int i = 2; i < argc; ++i)
      rows.push_back(std::clamp(std::atol(argv[i]), 1L, ExpertBench::kRowsMax));
    if (rows.empty()) rows = {1, 16, 64, 256, 1024, 4096, 8192, 16384};
    BenchExperts(rows);
  } else if (argc == 2 && std::strcmp(argv[1], "latent") == 0) {
    BenchLatent();
  } else {
    std::fprintf(stderr, "usage: hybrid_cuda_bench experts [ROWS...] | latent\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace deltafill::test

int main(int argc, char** argv) {
  try {
    return deltafill::test::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hybrid_cuda_bench: %s\n", error.what());
    return 1;
  }
}
