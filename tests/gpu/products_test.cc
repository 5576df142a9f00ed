// Matrix products of the CUDA backend: values against float64, and a row's bits, which depend on
// neither the number of rows nor the row's place.
#include <algorithm>
#include <cstring>

#include "tests/gpu/backend_fixture.h"
#include "tests/testing/operator_reference.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DType;
using kernels::MatMulParams;

struct ProductShape {
  int64_t out, in;
};

class ProductsTest : public CudaBackendTest {
 protected:
  // x, w, bias and y of one product; strides are the widths plus `gap`.
  void CheckValues(const ProductShape& shape, int64_t rows, DType y_dtype, bool accumulate,
                   bool biased, int64_t gap) {
    Random random(static_cast<uint64_t>(shape.out * 7 + rows));
    const std::vector<float> x = Bf16Normal(&random, rows * shape.in);
    const std::vector<float> w = Bf16Normal(&random, shape.out * shape.in, 0.1);
    const std::vector<float> bias = Bf16Normal(&random, shape.out);
    const std::vector<float> before = Bf16Normal(&random, rows * shape.out);
    const auto weight = NewWeight(w, shape.out, shape.in);
    const auto spread = [&](const std::vector<float>& dense, int64_t width) {
      std::vector<float> out(static_cast<size_t>(rows * (width + gap)), NAN);
      for (int64_t row = 0; row < rows; ++row) {
        std::copy_n(dense.begin() + row * width, width, out.begin() + row * (width + gap));
      }
      return out;
    };
    const BackendBuffer x_rows = UploadBf16(spread(x, shape.in));
    const std::vector<float> y_before = spread(before, shape.out);
    const BackendBuffer y_rows = y_dtype == DType::kF32 ? Upload(y_before) : UploadBf16(y_before);
    const BackendBuffer bias_device = Upload(bias);
    MatMulParams params;
    params.x = {x_rows.as<void>(), DType::kBF16, shape.in + gap};
    params.weight = weight.get();
    params.bias = biased ? bias_device.as<float>() : nullptr;
    params.y = {y_rows.as<void>(), y_dtype, shape.out + gap};
    params.rows = rows;
    params.accumulate = accumulate;
    const std::vector<double> expected =
        MatMulReference(x, w, biased ? bias : std::vector<float>(),
                        accumulate ? before : std::vector<float>(), rows, shape.out, shape.in);
    for (const bool decode : {false, true}) {
      params.step = decode;
      if (y_dtype == DType::kF32) {
        Must(lane_->CopyFromHost(y_rows.as<void>(), y_before.data(), y_rows.bytes()));
      } else {
        const std::vector<uint16_t> bits = ToBf16Bits(y_before);
        Must(lane_->CopyFromHost(y_rows.as<void>(), bits.data(), y_rows.bytes()));
      }
      const kernels::Status status = lane_->MatMul(params);
      ASSERT_TRUE(status.ok()) << status.message();
      const std::vector<float> got =
          y_dtype == DType::kF32 ? Read<float>(y_rows) : ReadBf16(y_rows);
      std::vector<float> dense;
      for (int64_t row = 0; row < rows; ++row) {
        const auto begin = got.begin() + row * (shape.out + gap);
        dense.insert(dense.end(), begin, begin + shape.out);
        for (int64_t i = 0; i < gap; ++i) EXPECT_TRUE(std::isnan(begin[shape.out + i]));
      }
      EXPECT_LE(RelativeError(dense, expected), y_dtype == DType::kF32 ? 2e-5 : 3e-3)
          << "[" << shape.out << ", " << shape.in << "] rows " << rows << " accumulate "
          << accumulate << " bias " << biased << " gap " << gap << " decode " << decode;
    }
  }

  // The bytes of rows [first, first + rows) of x in a call of their own.
  std::vector<uint8_t> Run(const kernels::Weight& weight, const BackendBuffer& x, int64_t first,
                           int64_t rows, DType y_dtype, bool decode,
                           const BackendBuffer* start = nullptr) {
    const int64_t out = weight.out_features(), in = weight.in_features();
    const size_t row_bytes = static_cast<size_t>(out) * SizeOf(y_dtype);
    const BackendBuffer y(backend_, static_cast<size_t>(rows) * row_bytes);
    MatMulParams params;
    params.x = {x.as<uint16_t>() + first * in, DType::kBF16, in};
    params.weight = &weight;
    params.y = {y.as<void>(), y_dtype, out};
    params.rows = rows;
    params.step = decode;
    if (start != nullptr) {
      params.accumulate = true;
      // The same starting values for the same rows.
      std::vector<uint8_t> values = Read<uint8_t>(*start);
      Must(lane_->CopyFromHost(y.as<void>(), values.data() + static_cast<size_t>(first) * row_bytes,
                               y.bytes()));
      Must(lane_->Synchronize());
    }
    Must(lane_->MatMul(params));
    return Read<uint8_t>(y);
  }

  void ExpectRows(const std::vector<uint8_t>& got, const std::vector<uint8_t>& all, int64_t first,
                  int64_t rows, int64_t row_bytes, const std::string& what) {
    const bool equal = std::memcmp(got.data(), all.data() + first * row_bytes,
                                   static_cast<size_t>(rows * row_bytes)) == 0;
    EXPECT_TRUE(equal) << what << ": rows [" << first << ", " << first + rows << ") differ";
  }

  // Every number of rows up to 300, each at another place, and large ones.
  void CheckRowInvariance(const ProductShape& shape, DType y_dtype, int64_t rows_total,
                          bool decode) {
    Random random(11);
    const std::vector<float> x = Bf16Normal(&random, rows_total * shape.in);
    const auto weight =
        NewWeight(Bf16Normal(&random, shape.out * shape.in, 0.05), shape.out, shape.in);
    const BackendBuffer x_device = UploadBf16(x);
    const std::vector<uint8_t> all = Run(*weight, x_device, 0, rows_total, y_dtype, decode);
    const int64_t row_bytes = shape.out * static_cast<int64_t>(SizeOf(y_dtype));
    const std::string what = "out " + std::to_string(shape.out) + (decode ? " decode" : "");
    std::vector<int64_t> counts;
    for (int64_t rows = 1; rows <= 300; ++rows) counts.push_back(rows);
    for (int64_t rows : {512, 513, 1024, 1025, 2048, 3000, 4096, 16384, 16385}) {
      counts.push_back(rows);
    }
    for (int64_t rows : counts) {
      if (rows > rows_total || testing::Test::HasFailure()) break;
      const int64_t first = (rows * 53) % (rows_total - rows + 1);
      ExpectRows(Run(*weight, x_device, first, rows, y_dtype, decode), all, first, rows, row_bytes,
                 what);
    }
  }
};

TEST_F(ProductsTest, Values) {
  for (const ProductShape& shape : std::vector<ProductShape>{
           {1, 8}, {5, 24}, {64, 64}, {260, 128}, {272, 512}, {768, 264}, {129, 1024}}) {
    for (int64_t rows : {1, 3, 64, 130}) {
      for (const DType y_dtype : {DType::kBF16, DType::kF32}) {
        CheckValues(shape, rows, y_dtype, false, false, 0);
        CheckValues(shape, rows, y_dtype, true, false, 8);
      }
    }
  }
}

TEST_F(ProductsTest, BiasAndUnalignedRows) {
  for (const DType y_dtype : {DType::kBF16, DType::kF32}) {
    for (const bool accumulate : {false, true}) {
      CheckValues({100, 64}, 70, y_dtype, accumulate, true, 0);
      CheckValues({100, 64}, 70, y_dtype, accumulate, false, 3);
      CheckValues({64, 64}, 1, y_dtype, accumulate, true, 1);
    }
  }
}

TEST_F(ProductsTest, RowInvarianceOfPrefill) {
  for (const ProductShape& shape : std::vector<ProductShape>{{2048, 2048},
                                                             {6144, 2048},
                                                             {272, 2048},
                                                             {2048, 128},
                                                             {11264, 2048},
                                                             {2304, 9216},
                                                             {260, 264}}) {
    CheckRowInvariance(shape, DType::kBF16, 4229, false);
  }
  CheckRowInvariance({1024, 512}, DType::kBF16, 20001, false);
}

TEST_F(ProductsTest, RowInvarianceOfF32Outputs) {
  CheckRowInvariance({2048, 2048}, DType::kF32, 1100, false);
  CheckRowInvariance({32000, 2048}, DType::kF32, 310, false);
}

TEST_F(ProductsTest, DecodeDoesNotDependOnTheBatch) {
  for (const ProductShape& shape : std::vector<ProductShape>{
           {2048, 2048}, {6144, 2048}, {272, 2048}, {2048, 128}, {2304, 9216}}) {
    CheckRowInvariance(shape, DType::kBF16, 301, true);
  }
  CheckRowInvariance({32000, 2048}, DType::kF32, 130, true);
}

TEST_F(ProductsTest, RowInvarianceOfResidualProducts) {
  Random random(13);
  const ProductShape shape = {2048, 2048};
  const int64_t rows_total = 1300;
  const auto weight =
      NewWeight(Bf16Normal(&random, shape.out * shape.in, 0.05), shape.out, shape.in);
  const BackendBuffer x = UploadBf16(Bf16Normal(&random, rows_total * shape.in));
  const BackendBuffer start = UploadBf16(Bf16Normal(&random, rows_total * shape.out));
  const std::vector<uint8_t> all = Run(*weight, x, 0, rows_total, DType::kBF16, false, &start);
  for (int64_t rows : {1, 2, 17, 63, 64, 65, 127, 129, 256, 257, 300, 1024, 1025, 1299}) {
    const int64_t first = (rows * 53) % (rows_total - rows + 1);
    ExpectRows(Run(*weight, x, first, rows, DType::kBF16, false, &start), all, first, rows,
               shape.out * 2, "residual");
  }
}

// Rows at other strides and in other lanes: the same bits.
TEST_F(ProductsTest, StridesAndLanesDoNotMatter) {
  Random random(14);
  const int64_t rows = 200, in = 512, out = 768;
  const auto weight = NewWeight(Bf16Normal(&random, out * in, 0.05), out, in);
  const std::vector<float> x = Bf16Normal(&random, rows * in);
  const BackendBuffer dense = UploadBf16(x);
  const std::vector<uint8_t> expected = Run(*weight, dense, 0, rows, DType::kBF16, false);
  for (int64_t gap : {1, 8, 264}) {
    std::vector<float> wide(static_cast<size_t>(rows * (in + gap)), 7.0f);
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(x.begin() + row * in, in, wide.begin() + row * (in + gap));
    }
    const BackendBuffer x_wide = UploadBf16(wide);
    const BackendBuffer y(backend_, static_cast<size_t>(rows * out * 2));
    std::unique_ptr<kernels::Operators> other;
    Must(backend_->NewOperators(1, &other));
    MatMulParams params;
    params.x = {x_wide.as<void>(), DType::kBF16, in + gap};
    params.weight = weight.get();
    params.y = {y.as<void>(), DType::kBF16, out};
    params.rows = rows;
    Must(other->MatMul(params));
    Must(other->Synchronize());
    ExpectRows(Read<uint8_t>(y), expected, 0, rows, out * 2, "gap " + std::to_string(gap));
  }
}

}  // namespace
}  // namespace deltafill::test
