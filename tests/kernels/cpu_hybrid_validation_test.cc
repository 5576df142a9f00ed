// What latent attention and mixtures of experts say of bad params: each case breaks one field.
#include "tests/kernels/cpu_latent_test_base.h"
#include "tests/kernels/cpu_mixture_test_base.h"

namespace deltafill::kernels {
namespace {

class ForeignProjection : public LatentProjection {
 public:
  const LatentShape& shape() const override { return shape_; }

 private:
  LatentShape shape_ = ShapeOf(kOddDims);
};

// Params that are right: two sequences, of 3 rows from token 64 on and of 1 from 4096 on.
class BadLatentParamsTest : public CpuLatentTest {
 protected:
  void SetUp() override {
    CpuLatentTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    lane_ = Lane(1);
    test::Random random(1);
    weights_ = RandomProjection(kOddDims, random);
    projection_ = Project(kOddDims, weights_);
    sequences_ = {first_.At(64), second_.At(4096)};
    unaligned_page_ = reinterpret_cast<char*>(memory_.data()) + 2;
  }

  ConstRows Rows(int64_t stride) { return {memory_.data(), DType::kF32, stride}; }
  MutableRows Output(int64_t stride) { return {output_.data(), DType::kF32, stride}; }

  static constexpr int64_t kWidth = kOddDims.LatentWidth();
  CachedLatents first_{kOddDims, std::vector<float>(67 * kWidth, 0.5f)};
  CachedLatents second_{kOddDims, std::vector<float>(4097 * kWidth, 0.5f)};
  std::vector<LatentSequence> sequences_;
  const std::vector<int64_t> offsets_ = {0, 3, 4};
  std::vector<float> memory_ = std::vector<float>(1000);
  std::vector<float> output_ = std::vector<float>(1000);
  std::vector<float> weights_;
  void* null_page_ = nullptr;
  void* unaligned_page_ = nullptr;
  std::unique_ptr<Operators> lane_;
  std::unique_ptr<LatentProjection> projection_;
  const ForeignProjection foreign_;
};

TEST_F(BadLatentParamsTest, Projection) {
  std::unique_ptr<LatentProjection> out;
  const auto broken = [&](auto change) {
    LatentShape shape = ShapeOf(kOddDims);
    change(shape);
    return backend_->NewLatentProjection(weights_.data(), DType::kF32, shape, &out);
  };
  ExpectInvalid(broken([](auto& s) { s.heads = 0; }), "shape.heads: 0", "[1, ");
  ExpectInvalid(broken([](auto& s) { s.nope_dim = 0; }), "shape.nope_dim: 0");
  ExpectInvalid(broken([](auto& s) { s.rope_dim = -1; }), "shape.rope_dim: -1", "[0, ");
  ExpectInvalid(broken([](auto& s) { s.value_dim = -3; }), "shape.value_dim: -3");
  ExpectInvalid(broken([](auto& s) { s.rank = 1 << 20; }), "shape.rank: 1048576");
  ExpectInvalid(broken([](auto& s) { s.scale = -1.0f; }), "shape.scale: ");
  ExpectInvalid(broken([](auto& s) { s.scale = std::nanf(""); }), "shape.scale: ");
  ExpectInvalid(broken([](auto& s) { s.heads = 4096, s.nope_dim = 65536; }), "out_features: ");
  const LatentShape shape = ShapeOf(kOddDims);
  ExpectInvalid(backend_->NewLatentProjection(nullptr, DType::kF32, shape, &out), "host_data: ");
  ExpectInvalid(backend_->NewLatentProjection(weights_.data(), static_cast<DType>(8), shape, &out),
                "dtype: 8");
}

TEST_F(BadLatentParamsTest, Append) {
  const LatentAppendParams good{.x = Rows(kWidth),
                                .norm_weight = memory_.data(),
                                .rank = 40,
                                .rope_dim = 8,
                                .offsets = offsets_,
                                .sequences = sequences_};
  ASSERT_STATUS_OK(lane_->LatentAppend(good));
  const auto broken = [&](auto change) {
    LatentAppendParams params = good;
    change(params);
    return lane_->LatentAppend(params);
  };
  const auto broken_second = [&](const LatentSequence& sequence) {
    const LatentSequence sequences[] = {sequences_[0], sequence};
    return broken([&](auto& p) { p.sequences = sequences; });
  };
  ExpectInvalid(broken([](auto& p) { p.rank = 0; }), "rank: 0");
  ExpectInvalid(broken([](auto& p) { p.rope_dim = -8; }), "rope_dim: -8");
  ExpectInvalid(broken([](auto& p) { p.norm_weight = nullptr; }), "norm_weight: is null");
  ExpectInvalid(broken([](auto& p) { p.eps = -1.0f; }), "eps: ");
  ExpectInvalid(broken([](auto& p) { p.offsets = {}; }), "offsets: is empty");
  ExpectInvalid(broken([&](auto& p) {
                  p.sequences = {sequences_.data(), 1};
                }),
                "sequences.size(): 1", "2");
  ExpectInvalid(broken([](auto& p) { p.x.row_stride = 47; }), "x.row_stride: 47", "48");
  ExpectInvalid(broken([](auto& p) { p.x.data = nullptr; }), "x.data: is null");
  ExpectInvalid(broken_second(second_.At(-1)), "sequences[1].first_token: -1");
  ExpectInvalid(broken_second(first_.At(4096)), "sequences[1].pages.size(): 1", "2 pages");
  ExpectInvalid(broken_second({{&null_page_, 1}, 5}), "sequences[1].pages[0]: is null");
  ExpectInvalid(broken_second({{&unaligned_page_, 1}, 5}), "sequences[1].pages[0]: is not aligned");
  LatentAppendParams bf16 = good;
  bf16.x.dtype = DType::kBF16;
  EXPECT_EQ(lane_->LatentAppend(bf16).code(), StatusCode::kUnsupported);
}

TEST_F(BadLatentParamsTest, Prefill) {
  const LatentPrefillParams good{.projection = projection_.get(),
                                 .q = Rows(kOddDims.QueryWidth()),
                                 .offsets = offsets_,
                                 .sequences = sequences_,
                                 .o = Output(kOddDims.OutputWidth())};
  ASSERT_STATUS_OK(lane_->LatentPrefill(good));
  const auto broken = [&](auto change) {
    LatentPrefillParams params = good;
    change(params);
    return lane_->LatentPrefill(params);
  };
  const auto broken_second = [&](const LatentSequence& sequence) {
    const LatentSequence sequences[] = {sequences_[0], sequence};
    return broken([&](auto& p) { p.sequences = sequences; });
  };
  const std::vector<int64_t> falling = {0, 3, 2};
  ExpectInvalid(broken([](auto& p) { p.projection = nullptr; }), "projection: is null");
  ExpectInvalid(broken([&](auto& p) { p.projection = &foreign_; }), "projection: was not made");
  ExpectInvalid(broken([&](auto& p) { p.offsets = falling; }), "offsets[2]: 2");
  ExpectInvalid(broken([&](auto& p) { p.sequences = {}; }), "sequences.size(): 0", "2");
  ExpectInvalid(broken([](auto& p) { p.q.row_stride = 95; }), "q.row_stride: 95", "96");
  ExpectInvalid(broken([](auto& p) { p.o.row_stride = 59; }), "o.row_stride: 59", "60");
  ExpectInvalid(broken([](auto& p) { p.o.data = nullptr; }), "o.data: is null");
  ExpectInvalid(broken_second(second_.At(65)), "sequences[1].first_token: 65", "64");
  ExpectInvalid(broken_second(first_.At(4096)), "sequences[1].pages.size(): 1");
  void* pages[] = {nullptr, memory_.data()};
  ExpectInvalid(broken_second({pages, 4096}), "sequences[1].pages[0]: is null");
}

TEST_F(BadLatentParamsTest, Step) {
  const LatentStepParams good{.projection = projection_.get(),
                              .q = Rows(kOddDims.QueryWidth()),
                              .sequences = sequences_,
                              .o = Output(kOddDims.OutputWidth())};
  ASSERT_STATUS_OK(lane_->LatentStep(good));
  const auto broken = [&](auto change) {
    LatentStepParams params = good;
    change(params);
    return lane_->LatentStep(params);
  };
  const LatentSequence short_of_a_page[] = {first_.At(4096)};
  ExpectInvalid(broken([](auto& p) { p.projection = nullptr; }), "projection: is null");
  ExpectInvalid(broken([&](auto& p) { p.projection = &foreign_; }), "projection: was not made");
  ExpectInvalid(broken([](auto& p) { p.q.row_stride = 95; }), "q.row_stride: 95");
  ExpectInvalid(broken([](auto& p) { p.o.row_stride = 1; }), "o.row_stride: 1");
  ExpectInvalid(broken([&](auto& p) { p.sequences = short_of_a_page; }),
                "sequences[0].pages.size(): 1");
}

TEST_F(CpuLatentTest, BadMixtureParams) {
  test::Random random(2);
  const auto mixture = RandomMixture({4, 2, 6, 5}, random);
  const LoadedMixture loaded(mixture, [this](const std::vector<float>& w, int64_t out, int64_t in) {
    return NewWeight(w, out, in);
  });
  std::vector<float> x(3 * 6), y(3 * 6);
  const MixtureParams good =
      loaded.Params({x.data(), DType::kF32, 6}, {y.data(), DType::kF32, 6}, 3);
  const auto lane = Lane(1);
  ASSERT_STATUS_OK(lane->MixtureOfExperts(good));
  const auto broken = [&](auto change) {
    MixtureParams params = good;
    change(params);
    return lane->MixtureOfExperts(params);
  };
  std::vector<ExpertWeights> experts(good.experts.begin(), good.experts.end());
  ExpectInvalid(broken([](auto& p) { p.shape.experts = 0; }), "shape.experts: 0", "1024");
  ExpectInvalid(broken([](auto& p) { p.shape.experts = 1025; }), "shape.experts: 1025");
  ExpectInvalid(broken([](auto& p) { p.shape.top_k = 0; }), "shape.top_k: 0");
  ExpectInvalid(broken([](auto& p) { p.shape.top_k = 5; }), "shape.top_k: 5", "[1, 4]");
  ExpectInvalid(broken([](auto& p) { p.shape.hidden = 0; }), "shape.hidden: 0");
  ExpectInvalid(broken([](auto& p) { p.shape.expert_width = -1; }), "shape.expert_width: -1");
  ExpectInvalid(broken([](auto& p) { p.shape.routed_scale = INFINITY; }), "shape.routed_scale: ");
  ExpectInvalid(broken([](auto& p) { p.router = nullptr; }), "router: is null");
  ExpectInvalid(broken([&](auto& p) {
                  p.experts = {experts.data(), 3};
                }),
                "experts.size(): 3", "4");
  ExpectInvalid(broken([](auto& p) { p.shape.hidden = 7; }), "experts[0].gate_up: is [10, 6]",
                "not [10, 7]");
  experts[2].down = nullptr;
  ExpectInvalid(broken([&](auto& p) { p.experts = experts; }), "experts[2].down: is null");
  ExpectInvalid(broken([](auto& p) { p.rows = -1; }), "rows: -1");
  ExpectInvalid(broken([](auto& p) { p.x.row_stride = 5; }), "x.row_stride: 5");
  ExpectInvalid(broken([](auto& p) { p.y.data = nullptr; }), "y.data: is null");
}

}  // namespace
}  // namespace deltafill::kernels
