// Products of decoding steps: values against float64 for every number of rows, a row's bits in
// batches of every size and in launches with other products, and recordings.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/gpu/backend_fixture.h"
#include "tests/testing/operator_reference.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DType;
using kernels::MatMulParams;

struct StepShape {
  int64_t out, in;
};

// One product's operands on the device; rows lie `gap` elements more than their width apart, and
// `offset` elements from an aligned address.
struct StepOperands {
  std::unique_ptr<kernels::Weight> weight;
  std::vector<float> x, w, bias, before;
  BackendBuffer x_rows, y_rows, bias_device;
  MatMulParams params;
};

class StepProductsTest : public CudaBackendTest {
 protected:
  static std::vector<float> Spread(const std::vector<float>& dense, int64_t width, int64_t gap,
                                   int64_t offset) {
    const int64_t rows = static_cast<int64_t>(dense.size()) / width;
    std::vector<float> out(static_cast<size_t>(rows * (width + gap) + offset), NAN);
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(dense.begin() + row * width, width, out.begin() + offset + row * (width + gap));
    }
    return out;
  }

  StepOperands Make(const StepShape& shape, int64_t rows, DType y_dtype, int64_t gap = 0,
                    int64_t offset = 0) {
    Random random(static_cast<uint64_t>(shape.out * 7 + shape.in));
    std::vector<float> x = Bf16Normal(&random, rows * shape.in);
    std::vector<float> w = Bf16Normal(&random, shape.out * shape.in, 0.1);
    std::vector<float> bias = Bf16Normal(&random, shape.out);
    std::vector<float> before = Bf16Normal(&random, rows * shape.out);
    auto weight = NewWeight(w, shape.out, shape.in);
    BackendBuffer x_rows = UploadBf16(Spread(x, shape.in, gap, offset));
    const std::vector<float> y = Spread(before, shape.out, gap, offset);
    BackendBuffer y_rows = y_dtype == DType::kF32 ? Upload(y) : UploadBf16(y);
    BackendBuffer bias_device = Upload(bias);
    StepOperands made = {std::move(weight), std::move(x),           std::move(w),
                         std::move(bias),   std::move(before),      std::move(x_rows),
                         std::move(y_rows), std::move(bias_device), {}};
    made.params.x = {made.x_rows.as<uint16_t>() + offset, DType::kBF16, shape.in + gap};
    made.params.weight = made.weight.get();
    made.params.y = {made.y_rows.as<uint8_t>() + offset * static_cast<int64_t>(SizeOf(y_dtype)),
                     y_dtype, shape.out + gap};
    made.params.rows = rows;
    made.params.step = true;
    return made;
  }

  // The outputs of rows [0, rows), dense; what lies between them must be as it was.
  std::vector<float> ReadRows(const StepOperands& operands, int64_t width, int64_t gap,
                              int64_t offset) {
    const std::vector<float> all = operands.params.y.dtype == DType::kF32
                                       ? Read<float>(operands.y_rows)
                                       : ReadBf16(operands.y_rows);
    std::vector<float> dense;
    for (int64_t row = 0; row < operands.params.rows; ++row) {
      const auto begin = all.begin() + offset + row * (width + gap);
      dense.insert(dense.end(), begin, begin + width);
      for (int64_t i = 0; i < gap; ++i) EXPECT_TRUE(std::isnan(begin[width + i]));
    }
    return dense;
  }

  void CheckValues(const StepShape& shape, int64_t rows, DType y_dtype, bool accumulate,
                   bool biased, int64_t gap, int64_t offset) {
    StepOperands operands = Make(shape, rows, y_dtype, gap, offset);
    operands.params.accumulate = accumulate;
    if (biased) operands.params.bias = operands.bias_device.as<float>();
    const kernels::Status status = lane_->MatMul(operands.params);
    ASSERT_TRUE(status.ok()) << status.message();
    const std::vector<double> expected = MatMulReference(
        operands.x, operands.w, biased ? operands.bias : std::vector<float>(),
        accumulate ? operands.before : std::vector<float>(), rows, shape.out, shape.in);
    const std::vector<float> got = ReadRows(operands, shape.out, gap, offset);
    EXPECT_LE(RelativeError(got, expected), y_dtype == DType::kF32 ? 2e-5 : 3e-3)
        << "[" << shape.out << ", " << shape.in << "] rows " << rows << " accumulate " << accumulate
        << " bias " << biased << " gap " << gap << " offset " << offset;
  }

  // The bytes of y of rows [first, first + rows) of the operands, in a call of their own.
  std::vector<uint8_t> Run(const StepOperands& all, int64_t first, int64_t rows) {
    const int64_t out = all.weight->out_features(), in = all.weight->in_features();
    const BackendBuffer y = UploadBf16(std::vector<float>(
        all.before.begin() + first * out, all.before.begin() + (first + rows) * out));
    MatMulParams params = all.params;
    params.x = {all.x_rows.as<uint16_t>() + first * in, DType::kBF16, in};
    params.y = {y.as<void>(), DType::kBF16, out};
    params.rows = rows;
    Must(lane_->MatMul(params));
    return Read<uint8_t>(y);
  }
};

TEST_F(StepProductsTest, ValuesForEveryNumberOfRows) {
  for (int64_t rows = 1; rows <= 70; ++rows) {
    CheckValues({136, 520}, rows, DType::kBF16, rows % 2 == 1, rows % 3 == 1, 0, 0);
  }
}

// Fewer columns than a product takes at once, sums of every number of parts, odd features.
TEST_F(StepProductsTest, ValuesOfShapes) {
  for (const StepShape& shape : std::vector<StepShape>{{1, 8},
                                                       {5, 24},
                                                       {257, 256},
                                                       {129, 264},
                                                       {272, 1032},
                                                       {640, 2048},
                                                       {33, 5632},
                                                       {40, 9216}}) {
    for (const int64_t rows : {1, 8, 9, 17, 64}) {
      for (const DType y_dtype : {DType::kBF16, DType::kF32}) {
        CheckValues(shape, rows, y_dtype, false, false, 0, 0);
        CheckValues(shape, rows, y_dtype, true, true, 8, 0);
      }
    }
  }
}

TEST_F(StepProductsTest, RowsNeedNoAlignment) {
  for (const DType y_dtype : {DType::kBF16, DType::kF32}) {
    for (const int64_t rows : {1, 5, 20, 64}) {
      CheckValues({131, 536}, rows, y_dtype, true, false, 3, 0);
      CheckValues({131, 536}, rows, y_dtype, false, true, 0, 1);
      CheckValues({131, 536}, rows, y_dtype, true, true, 5, 3);
      CheckValues({131, 136}, rows, y_dtype, true, true, 5, 3);
    }
  }
}

// Every batch of 1 to 64 rows, each at another place, with what y held before.
TEST_F(StepProductsTest, BatchesDoNotShowInTheBits) {
  for (const StepShape& shape : std::vector<StepShape>{
           {2048, 2048}, {2048, 5632}, {272, 2048}, {2048, 128}, {5632, 1024}, {132, 264}}) {
    constexpr int64_t kRows = 64;
    StepOperands all = Make(shape, kRows, DType::kBF16);
    all.params.accumulate = true;
    const std::vector<uint8_t> expected = Run(all, 0, kRows);
    const int64_t row_bytes = shape.out * 2;
    for (int64_t rows = 1; rows < kRows; ++rows) {
      const int64_t first = (rows * 53) % (kRows - rows + 1);
      const std::vector<uint8_t> got = Run(all, first, rows);
      ASSERT_EQ(std::memcmp(got.data(), expected.data() + first * row_bytes, got.size()), 0)
          << "[" << shape.out << ", " << shape.in << "]: rows " << rows << " from " << first;
    }
  }
}

// Products of other shapes and dtypes run as one, and other calls among them.
TEST_F(StepProductsTest, ProductsOfOneCallHaveTheirOwnBits) {
  for (const int64_t rows : {1, 8, 9, 40, 64, 70}) {
    std::vector<StepOperands> operands;
    operands.push_back(Make({1024, 2048}, rows, DType::kBF16));
    operands.push_back(Make({272, 2048}, rows, DType::kF32));
    operands.push_back(Make({2048, 128}, rows, DType::kBF16));
    operands.push_back(Make({5, 24}, rows, DType::kBF16));
    operands.push_back(Make({384, 512}, rows, DType::kBF16));
    operands.push_back(Make({64, 64}, rows, DType::kBF16));
    operands[4].params.step = false;
    std::vector<MatMulParams> calls;
    std::vector<std::vector<uint8_t>> single;
    for (const StepOperands& product : operands) {
      Must(lane_->MatMul(product.params));
      single.push_back(Read<uint8_t>(product.y_rows));
      Must(lane_->FillZero(product.y_rows.as<void>(), product.y_rows.bytes()));
      calls.push_back(product.params);
    }
    Must(lane_->MatMuls(calls));
    for (size_t i = 0; i < operands.size(); ++i) {
      EXPECT_EQ(Read<uint8_t>(operands[i].y_rows), single[i])
          << "product " << i << " rows " << rows;
    }
    calls[2].y.data = nullptr;
    EXPECT_EQ(lane_->MatMuls(calls).code(), kernels::StatusCode::kInvalidArgument);
  }
}

// Gates and ups of one kernel in batches of every size; a product and SwiGLU alone add the parts of
// large shapes' sums in the same order.
TEST_F(StepProductsTest, GatedProductsAreProductsAndSwiGlu) {
  struct Case {
    StepShape shape;
    bool same_bits;
  };
  for (const Case& c : std::vector<Case>{{{16, 8}, true},
                                         {{272, 264}, true},
                                         {{272, 136}, true},
                                         {{8192, 1032}, true},
                                         {{11264, 2048}, true},
                                         {{1024, 2048}, false},
                                         {{144, 5632}, false}}) {
    constexpr int64_t kRows = 70;
    StepOperands all = Make(c.shape, kRows, DType::kBF16);
    const int64_t width = c.shape.out / 2;
    const auto run = [&](int64_t rows, bool as_one) {
      const BackendBuffer y =
          UploadBf16(std::vector<float>(static_cast<size_t>(rows * width), NAN));
      kernels::MatMulSwiGluParams params = {all.params, {y.as<void>(), DType::kBF16, width}};
      params.gate_up.rows = rows;
      if (as_one) {
        Must(lane_->MatMulSwiGlu(params));
      } else {
        Must(lane_->kernels::Operators::MatMulSwiGlu(params));
      }
      return Read<uint16_t>(y);
    };
    const std::vector<uint16_t> alone = run(kRows, false), whole = run(kRows, true);
    const std::vector<float> values = FromBf16Bits(alone);
    EXPECT_LE(RelativeError(FromBf16Bits(whole), std::vector<double>(values.begin(), values.end())),
              5e-3);
    if (c.same_bits) {
      EXPECT_EQ(whole, alone) << "[" << c.shape.out << ", " << c.shape.in << "]";
    }
    for (int64_t rows : {1, 7, 8, 9, 16, 17, 33, 64}) {
      EXPECT_EQ(run(rows, true), std::vector<uint16_t>(whole.begin(), whole.begin() + rows * width))
          << "[" << c.shape.out << ", " << c.shape.in << "] rows " << rows;
    }
  }
}

// Outputs, the other columns and tails, of which some are missing, some kept as they are, and those
// of 63 rows not aligned.
TEST_F(StepProductsTest, ConvolvedProductsAreProductsAndConvolution) {
  constexpr int64_t kOut = 413, kChannels = 384, kStride = 416;
  for (const int64_t rows : {1, 8, 9, 33, 63, 64, 70, 40}) {
    const int64_t in = rows == 40 ? 128 : 512;
    const int64_t tail_stride = kChannels * 3 + (rows == 63 ? 1 : 0);
    StepOperands operands = Make({kOut, in}, rows, DType::kBF16, kStride - kOut);
    Random random(31);
    const BackendBuffer weight = Upload(random.NormalVector(kChannels * 4, 0.5));
    const std::vector<float> before = random.NormalVector(rows * tail_stride, 1.0);
    std::vector<int64_t> offsets(static_cast<size_t>(rows) + 1);
    std::iota(offsets.begin(), offsets.end(), int64_t{0});
    std::vector<std::vector<uint8_t>> outcomes[2];
    for (const bool as_one : {false, true}) {
      const BackendBuffer tails = Upload(before);
      const BackendBuffer y =
          UploadBf16(std::vector<float>(static_cast<size_t>(rows * kChannels), NAN));
      std::vector<const float*> tails_in;
      std::vector<float*> tails_out;
      for (int64_t row = 0; row < rows; ++row) {
        float* const tail = tails.as<float>() + row * tail_stride;
        tails_in.push_back(row % 5 == 1 ? nullptr : tail);
        tails_out.push_back(row % 7 == 2 ? nullptr : tail);
      }
      const kernels::MatMulShortConvParams params = {
          .product = operands.params,
          .conv = {.x = operands.params.y,
                   .weight = weight.as<float>(),
                   .offsets = offsets,
                   .tails_in = tails_in.data(),
                   .tails_out = tails_out.data(),
                   .y = {y.as<void>(), DType::kBF16, kChannels},
                   .channels = kChannels}};
      if (as_one) {
        Must(lane_->MatMulShortConv(params));
      } else {
        Must(lane_->kernels::Operators::MatMulShortConv(params));
      }
      const std::vector<uint16_t> columns = Read<uint16_t>(operands.y_rows);
      std::vector<uint8_t> others;
      for (int64_t row = 0; row < rows; ++row) {
        const auto* const at =
            reinterpret_cast<const uint8_t*>(columns.data() + row * kStride + kChannels);
        others.insert(others.end(), at, at + (kOut - kChannels) * 2);
      }
      outcomes[as_one] = {Read<uint8_t>(y), Read<uint8_t>(tails), others};
      EXPECT_TRUE(AllFinite(ReadBf16(y)));
      Must(lane_->FillZero(operands.y_rows.as<void>(), operands.y_rows.bytes()));
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(outcomes[1][i], outcomes[0][i]) << rows << " " << i;
  }
}

// A chain in which each product reads what the one before wrote, after a fill: in recordings too,
// where kernels start while the one before them runs.
TEST_F(StepProductsTest, ChainsWaitForTheirInputs) {
  constexpr int64_t kWidth = 512, kLinks = 40;
  Random random(21);
  const auto weight = NewWeight(Bf16Normal(&random, kWidth * kWidth, 0.02), kWidth, kWidth);
  for (const int64_t rows : {1, 33}) {
    const std::vector<float> start = Bf16Normal(&random, rows * kWidth);
    std::vector<std::vector<uint16_t>> outcomes;
    for (const bool waits : {true, false}) {
      const BackendBuffer x[2] = {UploadBf16(start), UploadBf16(start)};
      const auto issue = [&](bool synchronizes) {
        Must(lane_->FillZero(x[1].as<void>(), x[1].bytes()));
        for (int64_t link = 0; link < kLinks; ++link) {
          Must(lane_->MatMul({.x = {x[link % 2].as<void>(), DType::kBF16, kWidth},
                              .weight = weight.get(),
                              .y = {x[(link + 1) % 2].as<void>(), DType::kBF16, kWidth},
                              .rows = rows,
                              .accumulate = true,
                              .step = true}));
          if (synchronizes) Must(lane_->Synchronize());
        }
      };
      issue(waits);
      if (waits) {
        issue(true);
      } else {
        Must(lane_->Synchronize());
        std::unique_ptr<kernels::Recording> recording;
        Must(lane_->BeginRecording());
        issue(false);
        Must(lane_->EndRecording(&recording));
        Must(lane_->Replay(*recording, {}));
        Must(lane_->Synchronize());
      }
      outcomes.push_back(Read<uint16_t>(x[0]));
    }
    EXPECT_EQ(outcomes[1], outcomes[0]) << rows;
    EXPECT_TRUE(AllFinite(FromBf16Bits(outcomes[0])));
  }
}

}  // namespace
}  // namespace deltafill::test
