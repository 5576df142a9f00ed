// Making a backend, its memory and copies, and what each operator says of bad params.
#include <gmock/gmock.h>

#include <cstring>
#include <limits>

#include "tests/kernels/cpu_backend_test_base.h"

namespace deltafill::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(CpuBackendTest, NumericsNamesEverythingThatBitsDependOn) {
  const std::string isa = IsaUnderTest().empty() ? "avx" : IsaUnderTest() + "/onednn-";
  EXPECT_THAT(backend_->numerics(), StartsWith("cpu/f32/" + isa));
  EXPECT_THAT(backend_->numerics(), HasSubstr("/block64/v"));
  EXPECT_EQ(backend_->activation_dtype(), DType::kF32);
  EXPECT_TRUE(backend_->is_host_memory());
}

TEST_F(CpuBackendTest, InstructionSetsThatAreNotToBeHadAreRefused) {
  std::unique_ptr<Backend> other;
  ExpectInvalid(NewCpuBackend({.isa = "sse9"}, &other), "isa: \"sse9\"");
  // This process is pinned; "" and the pinned set still serve, the other set does not.
  EXPECT_TRUE(NewCpuBackend({}, &other).ok());
  EXPECT_EQ(other->numerics(), backend_->numerics());
  const bool is_avx2 = backend_->numerics().find("avx2") != std::string::npos;
  EXPECT_TRUE(NewCpuBackend({.isa = is_avx2 ? "avx2" : "avx512"}, &other).ok());
  ExpectInvalid(NewCpuBackend({.isa = is_avx2 ? "avx512" : "avx2"}, &other), "isa: ", "pinned");
  ExpectInvalid(NewCpuBackend({.compute_dtype = DType::kF16}, &other), "compute_dtype: 2");
}

// What a backend in the host's memory answers where only a GPU has something of its own.
TEST_F(CpuBackendTest, HostMemoryIsOrdinaryAndNothingIsRecorded) {
  for (size_t bytes : {0, 1, 100000}) {
    void* buffer = nullptr;
    ASSERT_STATUS_OK(backend_->AllocateHost(bytes, &buffer));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer) % 64, 0u);
    std::memset(buffer, 1, bytes);
    backend_->FreeHost(buffer);
  }
  backend_->FreeHost(nullptr);
  MemoryReport report;
  ExpectStatus(backend_->ReadMemory(&report), StatusCode::kUnsupported, "memory report");
  std::unique_ptr<Recording> recording;
  const auto lane = Lane(1);
  ExpectStatus(lane->BeginRecording(), StatusCode::kUnsupported, "recordings");
  ExpectStatus(lane->EndRecording(&recording), StatusCode::kUnsupported, "recordings");
  std::unique_ptr<Weight> weight;
  ExpectStatus(backend_->NewRandomWeight(1, 1.0f, 8, 8, &weight), StatusCode::kUnsupported,
               "random weights");
}

TEST_F(CpuBackendTest, MemoryIsAlignedAndCopied) {
  void* buffer = nullptr;
  for (size_t bytes : {0, 1, 63, 100000}) {
    ASSERT_STATUS_OK(backend_->Allocate(bytes, &buffer));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer) % 64, 0u);
    backend_->Free(buffer);
  }
  ExpectStatus(backend_->Allocate(std::numeric_limits<size_t>::max() / 2, &buffer),
               StatusCode::kResourceExhausted, "buffer", "bytes");
  EXPECT_EQ(buffer, nullptr);
  backend_->Free(nullptr);

  const auto lane = Lane(1);
  ASSERT_STATUS_OK(backend_->Allocate(16, &buffer));
  char back[16] = {};
  ASSERT_STATUS_OK(lane->CopyFromHost(buffer, "0123456789abcdef", 16));
  ASSERT_STATUS_OK(lane->FillZero(buffer, 4));
  ASSERT_STATUS_OK(lane->CopyToHost(back, buffer, 16));
  ASSERT_STATUS_OK(lane->Synchronize());
  EXPECT_EQ(std::memcmp(back, "\0\0\0\000456789abcdef", 16), 0);
  ASSERT_STATUS_OK(lane->Copy(back, static_cast<char*>(buffer) + 4, 6));
  EXPECT_EQ(std::memcmp(back, "456789", 6), 0);
  std::unique_ptr<LanePoint> point;
  for (int i = 0; i < 2; ++i) {
    ASSERT_STATUS_OK(lane->Mark(&point));
    ASSERT_STATUS_OK(point->Wait());
  }
  ExpectInvalid(lane->Copy(back, nullptr, 1), "from: ");
  ExpectInvalid(lane->CopyFromHost(nullptr, back, 1), "to: ");
  ExpectInvalid(lane->CopyToHost(back, nullptr, 1), "from: ");
  ExpectInvalid(lane->FillZero(nullptr, 1), "to: ");
  EXPECT_TRUE(lane->CopyFromHost(nullptr, nullptr, 0).ok());
  backend_->Free(buffer);
}

TEST_F(CpuBackendTest, LanesAndWeightsCheckTheirSizes) {
  std::unique_ptr<Operators> lane;
  ExpectInvalid(backend_->NewOperators(0, &lane), "threads: 0", "[1, 1024]");
  ExpectInvalid(backend_->NewOperators(1025, &lane), "threads: 1025");
  std::unique_ptr<Weight> weight;
  const float w[6] = {};
  ExpectInvalid(backend_->NewWeight(nullptr, DType::kF32, 2, 3, &weight), "host_data: ");
  ExpectInvalid(backend_->NewWeight(w, DType::kF32, 0, 3, &weight), "out_features: 0");
  ExpectInvalid(backend_->NewWeight(w, DType::kF32, 2, -3, &weight), "in_features: -3");
  ExpectInvalid(backend_->NewWeight(w, static_cast<DType>(9), 2, 3, &weight), "dtype: 9");
  ExpectInvalid(
      backend_->NewWeight(reinterpret_cast<const char*>(w) + 1, DType::kF32, 1, 1, &weight),
      "host_data: ");
}

// Starts from params that are right and breaks one field at a time.
class BadParamsTest : public CpuBackendTest {
 protected:
  void SetUp() override {
    CpuBackendTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    lane_ = Lane(1);
    weight_ = NewWeight(memory_, 6, 4);
  }

  MutableRows Rows(int64_t stride) { return {memory_.data(), DType::kF32, stride}; }
  MutableRows Null() { return {nullptr, DType::kF32, 100}; }
  MutableRows Bf16() { return {memory_.data(), DType::kBF16, 100}; }

  std::vector<float> memory_ = std::vector<float>(1000);
  std::vector<float> output_ = std::vector<float>(1000);
  std::unique_ptr<Operators> lane_;
  std::unique_ptr<Weight> weight_;
};

class ForeignWeight : public Weight {
  int64_t out_features() const override { return 6; }
  int64_t in_features() const override { return 4; }
};

TEST_F(BadParamsTest, MatMul) {
  const MatMulParams good{
      .x = Rows(4), .weight = weight_.get(), .y = {output_.data(), DType::kF32, 6}, .rows = 3};
  ASSERT_STATUS_OK(lane_->MatMul(good));
  const auto broken = [&](auto change) {
    MatMulParams params = good;
    change(params);
    return lane_->MatMul(params);
  };
  const ForeignWeight foreign;
  ExpectInvalid(broken([](auto& p) { p.weight = nullptr; }), "weight: is null");
  ExpectInvalid(broken([&](auto& p) { p.weight = &foreign; }), "weight: was not made");
  ExpectInvalid(broken([](auto& p) { p.rows = -1; }), "rows: -1");
  ExpectInvalid(broken([&](auto& p) { p.x = Null(); }), "x.data: is null");
  ExpectInvalid(broken([](auto& p) { p.x.row_stride = 3; }), "x.row_stride: 3", "4");
  ExpectInvalid(broken([](auto& p) { p.y.row_stride = 5; }), "y.row_stride: 5", "6");
  ExpectInvalid(broken([](auto& p) { p.y.data = nullptr; }), "y.data: is null");
  ExpectInvalid(broken([&](auto& p) { p.x.data = reinterpret_cast<char*>(memory_.data()) + 2; }),
                "x.data: is not aligned");
  ExpectInvalid(broken([](auto& p) { p.x.dtype = static_cast<DType>(7); }), "x.dtype: 7");
  ExpectStatus(broken([&](auto& p) { p.x = Bf16(); }), StatusCode::kUnsupported, "x.dtype");
  ExpectStatus(broken([&](auto& p) { p.y = Bf16(); }), StatusCode::kUnsupported, "y.dtype");
}

TEST_F(BadParamsTest, Embedding) {
  const std::vector<uint32_t> tokens = {0, 5};
  const EmbeddingParams good{
      .table = weight_.get(), .tokens = tokens, .y = {output_.data(), DType::kF32, 4}};
  ASSERT_STATUS_OK(lane_->Embedding(good));
  const std::vector<uint32_t> too_large = {5, 6};
  const auto broken = [&](auto change) {
    EmbeddingParams params = good;
    change(params);
    return lane_->Embedding(params);
  };
  ExpectInvalid(broken([](auto& p) { p.table = nullptr; }), "table: is null");
  ExpectInvalid(broken([&](auto& p) { p.tokens = too_large; }), "tokens[1]: 6", "6");
  ExpectInvalid(broken([](auto& p) { p.y.row_stride = 3; }), "y.row_stride: 3");
}

TEST_F(BadParamsTest, RmsNorm) {
  const RmsNormParams good{.x = Rows(8),
                           .weight = memory_.data(),
                           .y = {output_.data(), DType::kF32, 8},
                           .rows = 2,
                           .groups = 2,
                           .width = 4};
  ASSERT_STATUS_OK(lane_->RmsNorm(good));
  const auto broken = [&](auto change) {
    RmsNormParams params = good;
    change(params);
    return lane_->RmsNorm(params);
  };
  ExpectInvalid(broken([](auto& p) { p.rows = -2; }), "rows: -2");
  ExpectInvalid(broken([](auto& p) { p.groups = 0; }), "groups: 0");
  ExpectInvalid(broken([](auto& p) { p.width = 0; }), "width: 0");
  ExpectInvalid(broken([](auto& p) { p.weight = nullptr; }), "weight: is null");
  ExpectInvalid(broken([](auto& p) { p.eps = -1e-6f; }), "eps: ");
  ExpectInvalid(broken([](auto& p) { p.eps = std::numeric_limits<float>::quiet_NaN(); }), "eps: ");
  ExpectInvalid(broken([](auto& p) { p.x.row_stride = 7; }), "x.row_stride: 7", "8");
  ExpectInvalid(broken([&](auto& p) { p.gate = Rows(7); }), "gate.row_stride: 7");
  ExpectStatus(broken([&](auto& p) { p.gate = Bf16(); }), StatusCode::kUnsupported, "gate.dtype");
  ExpectInvalid(broken([&](auto& p) { p.y = Null(); }), "y.data: is null");
}

TEST_F(BadParamsTest, ShortConv) {
  const std::vector<int64_t> offsets = {0, 2, 5};
  const ShortConvParams good{.x = Rows(4),
                             .weight = memory_.data(),
                             .offsets = offsets,
                             .y = {output_.data(), DType::kF32, 4},
                             .channels = 4};
  ASSERT_STATUS_OK(lane_->ShortConv(good));
  const std::vector<int64_t> late = {1, 5};
  const std::vector<int64_t> falling = {0, 5, 4};
  const auto broken = [&](auto change) {
    ShortConvParams params = good;
    change(params);
    return lane_->ShortConv(params);
  };
  ExpectInvalid(broken([](auto& p) { p.channels = 0; }), "channels: 0");
  ExpectInvalid(broken([](auto& p) { p.weight = nullptr; }), "weight: is null");
  ExpectInvalid(broken([](auto& p) { p.offsets = {}; }), "offsets: is empty");
  ExpectInvalid(broken([&](auto& p) { p.offsets = late; }), "offsets[0]: 1");
  ExpectInvalid(broken([&](auto& p) { p.offsets = falling; }), "offsets[2]: 4", "5");
  ExpectInvalid(broken([](auto& p) { p.x.row_stride = 3; }), "x.row_stride: 3");
  ExpectInvalid(broken([&](auto& p) { p.y = Null(); }), "y.data: is null");
}

TEST_F(BadParamsTest, ConvTailAndSwiGlu) {
  const ConvTailParams tail{.x = Rows(4), .tokens = 3, .tail_out = output_.data(), .channels = 4};
  ASSERT_STATUS_OK(lane_->ConvTail(tail));
  ConvTailParams bad_tail = tail;
  bad_tail.tokens = -1;
  ExpectInvalid(lane_->ConvTail(bad_tail), "tokens: -1");
  bad_tail = tail;
  bad_tail.tail_out = nullptr;
  ExpectInvalid(lane_->ConvTail(bad_tail), "tail_out: is null");
  bad_tail = tail;
  bad_tail.channels = -4;
  ExpectInvalid(lane_->ConvTail(bad_tail), "channels: -4");

  const SwiGluParams glu{
      .gate = Rows(4), .up = Rows(4), .y = {output_.data(), DType::kF32, 4}, .rows = 2, .width = 4};
  ASSERT_STATUS_OK(lane_->SwiGlu(glu));
  SwiGluParams bad_glu = glu;
  bad_glu.width = 5;
  ExpectInvalid(lane_->SwiGlu(bad_glu), "gate.row_stride: 4", "5");
  bad_glu = glu;
  bad_glu.up = Null();
  ExpectInvalid(lane_->SwiGlu(bad_glu), "up.data: is null");
  bad_glu = glu;
  bad_glu.rows = -1;
  ExpectInvalid(lane_->SwiGlu(bad_glu), "rows: -1");
}

}  // namespace
}  // namespace deltafill::kernels
