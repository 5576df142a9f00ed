// Layers of latent attention and a mixture of experts beside a shared one, walked through the
// operator interface as the worker's hybrid models do: cut into ranges they give the bits of one
// pass, and a decoding step does not depend on the batch.
#include <algorithm>
#include <cmath>

#include "tests/gpu/backend_fixture.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DType;
using kernels::LatentSequence;
using kernels::MutableRows;
using kernels::Weight;

constexpr int64_t kTokens = 1000, kHidden = 512, kWidth = 128, kRank = 64;
constexpr int kLayers = 2, kHeads = 4, kExperts = 32, kTopK = 4;
constexpr kernels::LatentShape kLatent = {
    .heads = kHeads, .nope_dim = 128, .rope_dim = 64, .value_dim = 128, .rank = kRank};
constexpr kernels::MixtureShape kMixture = {.experts = kExperts,
                                            .top_k = kTopK,
                                            .hidden = kHidden,
                                            .expert_width = kWidth,
                                            .routed_scale = 2.446f};

class HybridWalkTest : public CudaBackendTest {
 protected:
  struct Layer {
    std::unique_ptr<Weight> latent, query, output, shared_gate_up, shared_down;
    std::unique_ptr<kernels::LatentProjection> projection;
    std::unique_ptr<BackendBuffer> norms, latent_norm, router, bias;
    std::vector<std::unique_ptr<Weight>> matrices;
    std::vector<kernels::ExpertWeights> experts;
  };
  // A sequence's latents, a page a layer.
  struct Cache {
    std::vector<BackendBuffer> memory;
    std::vector<void*> pages;
    LatentSequence At(int layer, int64_t token) const { return {{pages.data() + layer, 1}, token}; }
  };
  // What a pass works in.
  struct Scratch {
    BackendBuffer hidden, normed, latent, query, output, gate_up, inner;
  };

  void SetUp() override {
    CudaBackendTest::SetUp();
    if (backend_ == nullptr) return;
    for (int i = 0; i < kLayers; ++i) layers_.push_back(NewLayer());
    input_ = Bf16Normal(&random_, kTokens * kHidden);
  }

  std::unique_ptr<Weight> Matrix(int64_t out, int64_t in) {
    std::unique_ptr<Weight> weight;
    Must(backend_->NewRandomWeight(++seed_, std::sqrt(3.0f / static_cast<float>(in)), out, in,
                                   &weight));
    return weight;
  }
  std::unique_ptr<BackendBuffer> Vector(int64_t count, double scale, double mean) {
    return std::make_unique<BackendBuffer>(Upload(random_.NormalVector(count, scale, mean)));
  }

  Layer NewLayer() {
    Layer layer;
    layer.latent = Matrix(kLatent.LatentWidth(), kHidden);
    layer.query = Matrix(kLatent.QueryWidth(), kHidden);
    layer.output = Matrix(kHidden, kLatent.OutputWidth());
    layer.shared_gate_up = Matrix(2 * kWidth, kHidden);
    layer.shared_down = Matrix(kHidden, kWidth);
    const auto kv_b = random_.NormalVector(kHeads * 256 * kRank, 1.0 / 8);
    Must(backend_->NewLatentProjection(kv_b.data(), DType::kF32, kLatent, &layer.projection));
    layer.norms = Vector(2 * kHidden, 0.1, 1.0);
    layer.latent_norm = Vector(kRank, 0.1, 1.0);
    layer.router = Vector(kExperts * kHidden, 1.0 / std::sqrt(kHidden), 0.0);
    layer.bias = Vector(kExperts, 0.1, 0.0);
    for (int e = 0; e < kExperts; ++e) {
      layer.matrices.push_back(Matrix(2 * kWidth, kHidden));
      layer.matrices.push_back(Matrix(kHidden, kWidth));
      layer.experts.push_back(
          {layer.matrices[layer.matrices.size() - 2].get(), layer.matrices.back().get()});
    }
    return layer;
  }

  Cache NewCache() {
    Cache cache;
    for (int i = 0; i < kLayers; ++i) {
      const auto bytes =
          static_cast<size_t>(kernels::kLatentPageTokens * kLatent.LatentWidth() * 2);
      cache.memory.emplace_back(backend_, bytes);
      cache.pages.push_back(cache.memory.back().as<void>());
    }
    return cache;
  }
  Scratch NewScratch(int64_t rows) {
    const auto buffer = [&](int64_t width) {
      return BackendBuffer(backend_, static_cast<size_t>(rows * width * 2));
    };
    return {buffer(kHidden),
            buffer(kHidden),
            buffer(kLatent.LatentWidth()),
            buffer(kLatent.QueryWidth()),
            buffer(kLatent.OutputWidth()),
            buffer(2 * kWidth),
            buffer(kWidth)};
  }

  // Sequence i has rows [offsets[i], offsets[i + 1]) of scratch.hidden, at positions[i] and on.
  void Walk(kernels::Operators& lane, const Scratch& scratch, const std::vector<int64_t>& offsets,
            const std::vector<const Cache*>& caches, const std::vector<int64_t>& positions,
            bool step) {
    const int64_t rows = offsets.back();
    const auto view = [](const BackendBuffer& buffer, int64_t width) {
      return MutableRows{buffer.as<void>(), DType::kBF16, width};
    };
    const MutableRows hidden = view(scratch.hidden, kHidden);
    const MutableRows normed = view(scratch.normed, kHidden);
    const auto multiply = [&](const MutableRows& x, const Weight& weight, const MutableRows& y,
                              bool accumulate = false) {
      Must(lane.MatMul({.x = x,
                        .weight = &weight,
                        .y = y,
                        .rows = rows,
                        .accumulate = accumulate,
                        .step = step}));
    };
    for (int i = 0; i < kLayers; ++i) {
      const Layer& w = layers_[static_cast<size_t>(i)];
      std::vector<LatentSequence> sequences;
      for (size_t s = 0; s < caches.size(); ++s) {
        sequences.push_back(caches[s]->At(i, positions[s]));
      }
      const float* const norms = w.norms->as<float>();
      const MutableRows latent = view(scratch.latent, kLatent.LatentWidth());
      const MutableRows query = view(scratch.query, kLatent.QueryWidth());
      const MutableRows output = view(scratch.output, kLatent.OutputWidth());
      Must(lane.RmsNorm(
          {.x = hidden, .weight = norms, .y = normed, .rows = rows, .width = kHidden}));
      multiply(normed, *w.latent, latent);
      Must(lane.LatentAppend({.x = latent,
                              .norm_weight = w.latent_norm->as<float>(),
                              .rank = kRank,
                              .rope_dim = kLatent.rope_dim,
                              .offsets = offsets,
                              .sequences = sequences}));
      multiply(normed, *w.query, query);
      if (step) {
        Must(lane.LatentStep({w.projection.get(), query, sequences, output}));
      } else {
        Must(lane.LatentPrefill({w.projection.get(), query, offsets, sequences, output}));
      }
      multiply(output, *w.output, hidden, true);
      Must(lane.RmsNorm(
          {.x = hidden, .weight = norms + kHidden, .y = normed, .rows = rows, .width = kHidden}));
      Must(lane.MixtureOfExperts({.shape = kMixture,
                                  .x = normed,
                                  .router = w.router->as<float>(),
                                  .correction_bias = w.bias->as<float>(),
                                  .experts = w.experts,
                                  .y = hidden,
                                  .rows = rows,
                                  .step = step}));
      const MutableRows gate_up = view(scratch.gate_up, 2 * kWidth);
      const MutableRows up = {scratch.gate_up.as<uint16_t>() + kWidth, DType::kBF16, 2 * kWidth};
      multiply(normed, *w.shared_gate_up, gate_up);
      Must(lane.SwiGlu({gate_up, up, view(scratch.inner, kWidth), rows, kWidth}));
      multiply(view(scratch.inner, kWidth), *w.shared_down, hidden, true);
    }
  }

  // Rows of the input from `first` on; returns what the layers made of them.
  std::vector<float> Prefill(kernels::Operators& lane, const Cache& cache, int64_t first,
                             int64_t rows) {
    const Scratch scratch = NewScratch(rows);
    const auto bits = ToBf16Bits(std::span(input_).subspan(static_cast<size_t>(first * kHidden),
                                                           static_cast<size_t>(rows * kHidden)));
    Must(lane.CopyFromHost(scratch.hidden.as<void>(), bits.data(), bits.size() * 2));
    Walk(lane, scratch, {0, rows}, {&cache}, {first}, false);
    Must(lane.Synchronize());
    return ReadBf16(scratch.hidden);
  }

  Random random_{31};
  uint64_t seed_ = 0;
  std::vector<Layer> layers_;
  std::vector<float> input_;
};

TEST_F(HybridWalkTest, RangesAndLanesGiveTheBitsOfOnePass) {
  const Cache whole_cache = NewCache();
  const std::vector<float> whole = Prefill(*lane_, whole_cache, 0, kTokens);
  ASSERT_TRUE(AllFinite(whole));
  EXPECT_NE(ByteDifference(whole, input_), "");
  std::unique_ptr<kernels::Operators> other;
  Must(backend_->NewOperators(1, &other));
  const std::vector<std::vector<int64_t>> cuts = {
      {64, 936}, {512, 488}, {960, 40}, {128, 64, 256, 448, 104}, {576, 64, 360}};
  for (const auto& lengths : cuts) {
    const Cache cache = NewCache();
    std::vector<float> parts;
    int64_t first = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const auto part = Prefill(i % 2 == 0 ? *lane_ : *other, cache, first, lengths[i]);
      parts.insert(parts.end(), part.begin(), part.end());
      first += lengths[i];
    }
    EXPECT_EQ(ByteDifference(parts, whole), "") << lengths[0];
    for (int layer = 0; layer < kLayers; ++layer) {
      auto latents = Read<uint16_t>(cache.memory[static_cast<size_t>(layer)]);
      auto expected = Read<uint16_t>(whole_cache.memory[static_cast<size_t>(layer)]);
      latents.resize(static_cast<size_t>(kTokens * kLatent.LatentWidth()));
      expected.resize(latents.size());
      EXPECT_EQ(latents, expected) << layer;
    }
  }
}

// Packed sequences at different positions have the bits that each has alone.
TEST_F(HybridWalkTest, PackedSequencesDoNotShowInTheBits) {
  const Cache alone_cache = NewCache(), packed_cache = NewCache(), other_cache = NewCache();
  const std::vector<float> alone = Prefill(*lane_, alone_cache, 0, 200);
  (void)Prefill(*lane_, packed_cache, 0, 64);
  const Scratch scratch = NewScratch(500);
  auto bits = ToBf16Bits(std::span(input_).subspan(0, 364 * kHidden));
  const auto rest = ToBf16Bits(std::span(input_).subspan(64 * kHidden, 136 * kHidden));
  bits.insert(bits.end(), rest.begin(), rest.end());
  Must(lane_->CopyFromHost(scratch.hidden.as<void>(), bits.data(), bits.size() * 2));
  Walk(*lane_, scratch, {0, 364, 500}, {&other_cache, &packed_cache}, {0, 64}, false);
  Must(lane_->Synchronize());
  const std::vector<float> packed = ReadBf16(scratch.hidden);
  EXPECT_EQ(ByteDifference(std::span(packed).subspan(364 * kHidden, 136 * kHidden),
                           std::span(alone).subspan(64 * kHidden, 136 * kHidden)),
            "");
}

TEST_F(HybridWalkTest, DecodeDoesNotDependOnTheBatch) {
  // The sequence at `place` continues 130 tokens, the others fewer.
  const auto run = [&](int64_t batch, int64_t place) {
    std::vector<Cache> caches;
    std::vector<const Cache*> pointers;
    std::vector<int64_t> positions, offsets = {0};
    std::vector<uint16_t> rows;
    for (int64_t i = 0; i < batch; ++i) {
      caches.push_back(NewCache());
      positions.push_back(i == place ? 130 : 1 + i % 100);
      (void)Prefill(*lane_, caches.back(), 0, positions.back());
      offsets.push_back(i + 1);
    }
    for (const Cache& cache : caches) pointers.push_back(&cache);
    std::vector<float> outcome;
    const Scratch scratch = NewScratch(batch);
    for (int step = 0; step < 3; ++step) {
      rows.clear();
      for (int64_t position : positions) {
        const auto bits =
            ToBf16Bits(std::span(input_).subspan(static_cast<size_t>(position * kHidden), kHidden));
        rows.insert(rows.end(), bits.begin(), bits.end());
      }
      Must(lane_->CopyFromHost(scratch.hidden.as<void>(), rows.data(), rows.size() * 2));
      Walk(*lane_, scratch, offsets, pointers, positions, true);
      Must(lane_->Synchronize());
      const auto hidden = ReadBf16(scratch.hidden);
      outcome.insert(outcome.end(), hidden.begin() + place * kHidden,
                     hidden.begin() + (place + 1) * kHidden);
      for (int64_t& position : positions) ++position;
    }
    return outcome;
  };
  const std::vector<float> alone = run(1, 0);
  ASSERT_TRUE(AllFinite(alone));
  for (const auto& [batch, place] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {9, 4}, {17, 16}, {70, 66}}) {
    EXPECT_EQ(ByteDifference(run(batch, place), alone), "") << batch << " at " << place;
  }
  // A step's rows are near those of prefill: the same function in another order.
  const Cache cache = NewCache();
  const std::vector<float> prefilled = Prefill(*lane_, cache, 0, 133);
  const std::vector<double> expected(prefilled.begin() + 130 * kHidden,
                                     prefilled.begin() + 133 * kHidden);
  EXPECT_LE(RelativeError(alone, expected), 5e-2);
}

}  // namespace
}  // namespace deltafill::test
