// Products that what follows uses at once: values against float64, and a row's bits, which depend
// on neither the number of rows nor the row's place.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/gpu/backend_fixture.h"
#include "tests/testing/operator_reference.h"
#include "tests/testing/relative_error.h"

namespace deltafill::test {
namespace {

using kernels::DType;
using kernels::MutableRows;

std::vector<float> ToFloats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

// Columns [first, first + width) of rows of `stride`.
std::vector<float> Columns(const std::vector<float>& rows, int64_t stride, int64_t first,
                           int64_t width) {
  std::vector<float> out;
  for (auto row = rows.begin(); row != rows.end(); row += stride) {
    out.insert(out.end(), row + first, row + first + width);
  }
  return out;
}

class FusedProductsTest : public CudaBackendTest {
 protected:
  // Not a number everywhere, so that what was not written shows.
  BackendBuffer Poisoned(int64_t elements) {
    return UploadBf16(std::vector<float>(static_cast<size_t>(elements), NAN));
  }
  static MutableRows Rows(const BackendBuffer& buffer, int64_t stride, int64_t row = 0,
                          int64_t column = 0) {
    return {buffer.as<uint16_t>() + row * stride + column, DType::kBF16, stride};
  }

  // Rows [first, first + count) of x; y has `gap` columns more than are written.
  std::vector<float> SwiGlu(const kernels::Weight& weight, const BackendBuffer& x, int64_t x_stride,
                            int64_t first, int64_t count, int64_t gap, bool step = false) {
    const int64_t width = weight.out_features() / 2;
    const BackendBuffer room(backend_, static_cast<size_t>(count * 2 * width) * 2);
    const BackendBuffer y = Poisoned((count + 1) * (width + gap));
    Must(lane_->MatMulSwiGlu({.gate_up = {.x = Rows(x, x_stride, first),
                                          .weight = &weight,
                                          .y = Rows(room, 2 * width),
                                          .rows = count,
                                          .step = step},
                              .y = Rows(y, width + gap)}));
    std::vector<float> got = ReadBf16(y);
    for (int64_t row = 0; row <= count; ++row) {
      const int64_t written = row < count ? width : 0;
      for (int64_t i = written; i < width + gap; ++i) {
        EXPECT_TRUE(std::isnan(got[static_cast<size_t>(row * (width + gap) + i)]))
            << row << " " << i;
      }
    }
    got.resize(static_cast<size_t>(count * (width + gap)));
    return Columns(got, width + gap, 0, width);
  }

  // Of z's columns [8, 136) and dense rows of o, in place or not.
  std::vector<float> GatedNorm(const kernels::Weight& weight, const BackendBuffer& z,
                               const BackendBuffer& o, const BackendBuffer& norm_weight,
                               const float* bias, int64_t first, int64_t count) {
    const int64_t width = weight.out_features();
    const BackendBuffer room(backend_, static_cast<size_t>(count * width) * 2);
    const BackendBuffer y = Poisoned((count + 1) * width);
    Must(lane_->MatMulGatedNorm({.gate = {.x = Rows(z, kZStride, first, 8),
                                          .weight = &weight,
                                          .bias = bias,
                                          .y = Rows(room, width),
                                          .rows = count},
                                 .norm = {.x = Rows(o, width, first),
                                          .weight = norm_weight.as<float>(),
                                          .y = Rows(y, width),
                                          .rows = count,
                                          .groups = width / 128,
                                          .width = 128}}));
    std::vector<float> got = ReadBf16(y);
    for (int64_t i = 0; i < width; ++i) {
      EXPECT_TRUE(std::isnan(got[static_cast<size_t>(count * width + i)])) << i;
    }
    got.resize(static_cast<size_t>(count * width));
    return got;
  }

  static constexpr int64_t kZStride = 144;
};

TEST_F(FusedProductsTest, SwiGluValues) {
  const struct {
    int64_t width, in, rows, gap;
  } cases[] = {{8, 8, 3, 0},        {264, 72, 61, 8},     {64, 128, 256, 0},
               {1408, 512, 300, 0}, {136, 2048, 777, 16}, {5632, 256, 260, 8}};
  for (const auto& c : cases) {
    Random random(static_cast<uint64_t>(c.width + c.rows));
    const std::vector<float> x = Bf16Normal(&random, c.rows * c.in);
    const double scale = 1.5 / std::sqrt(static_cast<double>(c.in));
    const std::vector<float> w = Bf16Normal(&random, 2 * c.width * c.in, scale);
    const std::vector<float> sums =
        ToFloats(MatMulReference(x, w, {}, {}, c.rows, 2 * c.width, c.in));
    const std::vector<double> expected = SwiGluReference(
        Columns(sums, 2 * c.width, 0, c.width), Columns(sums, 2 * c.width, c.width, c.width));
    const auto weight = NewWeight(w, 2 * c.width, c.in);
    const BackendBuffer device_x = UploadBf16(x);
    for (const bool step : {false, true}) {
      EXPECT_LE(RelativeError(SwiGlu(*weight, device_x, c.in, 0, c.rows, c.gap, step), expected),
                step ? 4e-3 : 3e-3)
          << c.width << " x " << c.in << ", " << c.rows << " rows, step " << step;
    }
  }
}

TEST_F(FusedProductsTest, SwiGluRowsAreInvariant) {
  Random random(5);
  const int64_t rows = 1100, in = 512, width = 1408;
  const auto weight = NewWeight(Bf16Normal(&random, 2 * width * in, 0.06), 2 * width, in);
  const BackendBuffer x = UploadBf16(Bf16Normal(&random, rows * in));
  const std::vector<float> all = SwiGlu(*weight, x, in, 0, rows, 0);
  for (const int64_t count : {1, 2, 31, 64, 65, 129, 255, 256, 257, 513, 1099}) {
    const int64_t first = (count * 37) % (rows - count + 1);
    const std::vector<float> some = SwiGlu(*weight, x, in, first, count, 8);
    EXPECT_EQ(ByteDifference(some, std::span(all).subspan(static_cast<size_t>(first * width),
                                                          static_cast<size_t>(count * width))),
              "")
        << count;
  }
}

TEST_F(FusedProductsTest, GatedNormValues) {
  for (const int64_t heads : {1, 3, 16}) {
    for (const int64_t rows : {1, 63, 64, 200, 1000}) {
      Random random(static_cast<uint64_t>(heads * 1000 + rows));
      const int64_t width = heads * 128;
      const std::vector<float> z_rows = Bf16Normal(&random, rows * kZStride);
      const std::vector<float> o = Bf16Normal(&random, rows * width, 3.0);
      const std::vector<float> w = Bf16Normal(&random, width * 128, 0.2);
      const std::vector<float> bias = Bf16Normal(&random, width);
      const std::vector<float> norm_weight = random.NormalVector(128, 0.2, 1.0);
      const auto weight = NewWeight(w, width, 128);
      const BackendBuffer z = UploadBf16(z_rows), device_o = UploadBf16(o);
      const BackendBuffer device_weight = Upload(norm_weight), device_bias = Upload(bias);
      for (const bool biased : {false, true}) {
        const std::vector<float> gates =
            ToFloats(MatMulReference(Columns(z_rows, kZStride, 8, 128), w,
                                     biased ? bias : std::vector<float>(), {}, rows, width, 128));
        const std::vector<double> expected =
            RmsNormReference(o, norm_weight, gates, rows, heads, 128, 1e-5);
        EXPECT_LE(RelativeError(GatedNorm(*weight, z, device_o, device_weight,
                                          biased ? device_bias.as<float>() : nullptr, 0, rows),
                                expected),
                  3e-3)
            << heads << " heads, " << rows << " rows, bias " << biased;
      }
    }
  }
}

TEST_F(FusedProductsTest, GatedNormRowsAreInvariantAndMayBeInPlace) {
  Random random(7);
  const int64_t rows = 900, heads = 4, width = heads * 128;
  const BackendBuffer z = UploadBf16(Bf16Normal(&random, rows * kZStride));
  const BackendBuffer o = UploadBf16(Bf16Normal(&random, rows * width));
  const BackendBuffer norm_weight = Upload(random.NormalVector(128, 0.2, 1.0));
  const auto weight = NewWeight(Bf16Normal(&random, width * 128, 0.2), width, 128);
  const std::vector<float> all = GatedNorm(*weight, z, o, norm_weight, nullptr, 0, rows);
  for (const int64_t count : {1, 2, 31, 64, 65, 129, 256, 500, 899}) {
    const int64_t first = (count * 37) % (rows - count + 1);
    const std::vector<float> some = GatedNorm(*weight, z, o, norm_weight, nullptr, first, count);
    EXPECT_EQ(ByteDifference(some, std::span(all).subspan(static_cast<size_t>(first * width),
                                                          static_cast<size_t>(count * width))),
              "")
        << count;
  }
  const BackendBuffer room(backend_, static_cast<size_t>(rows * width) * 2);
  Must(lane_->MatMulGatedNorm({.gate = {.x = Rows(z, kZStride, 0, 8),
                                        .weight = weight.get(),
                                        .y = Rows(room, width),
                                        .rows = rows},
                               .norm = {.x = Rows(o, width),
                                        .weight = norm_weight.as<float>(),
                                        .y = Rows(o, width),
                                        .rows = rows,
                                        .groups = heads,
                                        .width = 128}}));
  EXPECT_EQ(ByteDifference(ReadBf16(o), all), "");
}

// The bits of the product and the convolution as calls of their own, of several sequences, with
// tails and without, with columns that are not convolved; and what tails are taken from.
TEST_F(FusedProductsTest, ShortConvHasTheBitsOfSingleCalls) {
  const struct {
    int64_t channels, rest, in;
    std::vector<int64_t> offsets;
    std::vector<int64_t> kept_ends;
  } cases[] = {{128, 16, 72, {0, 1}, {1}},
               {256, 0, 128, {0, 2, 5, 300}, {2, 5, 300}},
               {384, 272, 512, {0, 173}, {64, 128, 173}},
               {384, 144, 256, {0, 64, 170, 171, 520, 1100}, {64, 170, 171, 520, 1100, 576, 640}},
               {6144, 272, 256, {0, 700}, {700, 346, 347, 348, 349, 350}}};
  for (const auto& c : cases) {
    Random random(static_cast<uint64_t>(c.channels + c.rest));
    const int64_t rows = c.offsets.back(), out = c.channels + c.rest;
    const auto weight = NewWeight(Bf16Normal(&random, out * c.in, 0.1), out, c.in);
    const BackendBuffer x = UploadBf16(Bf16Normal(&random, rows * c.in));
    const BackendBuffer taps = Upload(random.NormalVector(c.channels * 4, 0.3, 0.0));
    std::vector<BackendBuffer> tails;
    std::vector<const float*> tails_in;
    for (size_t i = 0; i + 1 < c.offsets.size(); ++i) {
      tails.push_back(Upload(random.NormalVector(c.channels * 3, 1.0, 0.0)));
      tails_in.push_back(i == 1 ? nullptr : tails.back().as<float>());
    }
    const BackendBuffer y[2] = {Poisoned(rows * out), Poisoned(rows * out)};
    const BackendBuffer convolved[2] = {Poisoned(rows * c.channels), Poisoned(rows * c.channels)};
    const auto params = [&](int i) {
      return kernels::MatMulShortConvParams{.product = {.x = Rows(x, c.in),
                                                        .weight = weight.get(),
                                                        .y = Rows(y[i], out),
                                                        .rows = rows},
                                            .conv = {.x = Rows(y[i], out),
                                                     .weight = taps.as<float>(),
                                                     .offsets = c.offsets,
                                                     .tails_in = tails_in.data(),
                                                     .y = Rows(convolved[i], c.channels),
                                                     .channels = c.channels},
                                            .kept_ends = c.kept_ends};
    };
    Must(lane_->MatMul(params(0).product));
    Must(lane_->ShortConv(params(0).conv));
    kernels::MatMulShortConvParams fused = params(1);
    fused.conv.tails_in = nullptr;
    Must(lane_->StartMatMulShortConv(fused));
    Must(lane_->FinishMatMulShortConv(params(1)));
    EXPECT_EQ(ByteDifference(ReadBf16(convolved[1]), ReadBf16(convolved[0])), "") << c.channels;
    const std::vector<float> expected = ReadBf16(y[0]), got = ReadBf16(y[1]);
    if (c.rest > 0) {
      EXPECT_EQ(ByteDifference(Columns(got, out, c.channels, c.rest),
                               Columns(expected, out, c.channels, c.rest)),
                "");
    }
    std::vector<int64_t> kept;
    for (size_t i = 0; i + 1 < c.offsets.size(); ++i) {
      for (int64_t row = c.offsets[i]; row < std::min(c.offsets[i] + 3, c.offsets[i + 1]); ++row) {
        kept.push_back(row);
      }
    }
    for (const int64_t end : c.kept_ends) {
      for (int64_t row = std::max<int64_t>(0, end - 3); row < end; ++row) kept.push_back(row);
    }
    for (const int64_t row : kept) {
      const size_t at = static_cast<size_t>(row * out), count = static_cast<size_t>(c.channels);
      EXPECT_EQ(
          ByteDifference(std::span(got).subspan(at, count), std::span(expected).subspan(at, count)),
          "")
          << row;
    }
  }
}

TEST_F(FusedProductsTest, BadParamsAreRefused) {
  Random random(8);
  const auto weight = NewWeight(Bf16Normal(&random, 256 * 128), 256, 128);
  const BackendBuffer x = UploadBf16(Bf16Normal(&random, 64 * 512));
  const auto code = [](const kernels::Status& status) { return status.code(); };
  kernels::MatMulSwiGluParams swiglu = {
      .gate_up = {.x = Rows(x, 128), .weight = weight.get(), .y = Rows(x, 256), .rows = 4},
      .y = Rows(x, 128)};
  swiglu.gate_up.accumulate = true;
  EXPECT_EQ(code(lane_->MatMulSwiGlu(swiglu)), kernels::StatusCode::kInvalidArgument);
  swiglu.gate_up.accumulate = false;
  swiglu.y.row_stride = 120;
  EXPECT_EQ(code(lane_->MatMulSwiGlu(swiglu)), kernels::StatusCode::kInvalidArgument);
  kernels::MatMulGatedNormParams norm = {
      .gate = {.x = Rows(x, 128), .weight = weight.get(), .y = Rows(x, 256), .rows = 4},
      .norm = {.x = Rows(x, 256),
               .weight = x.as<float>(),
               .y = Rows(x, 256),
               .rows = 4,
               .groups = 3,
               .width = 128}};
  EXPECT_EQ(code(lane_->MatMulGatedNorm(norm)), kernels::StatusCode::kInvalidArgument);
  const std::vector<int64_t> offsets = {0, 4};
  kernels::MatMulShortConvParams conv = {
      .product = {.x = Rows(x, 128), .weight = weight.get(), .y = Rows(x, 256), .rows = 4},
      .conv = {.x = Rows(x, 264),
               .weight = x.as<float>(),
               .offsets = offsets,
               .y = Rows(x, 256),
               .channels = 256}};
  EXPECT_EQ(code(lane_->StartMatMulShortConv(conv)), kernels::StatusCode::kInvalidArgument);
  conv.conv.x.row_stride = 256;
  conv.conv.channels = 264;
  EXPECT_EQ(code(lane_->StartMatMulShortConv(conv)), kernels::StatusCode::kInvalidArgument);
  conv.conv.channels = 256;
  conv.product.rows = 5;
  EXPECT_EQ(code(lane_->FinishMatMulShortConv(conv)), kernels::StatusCode::kInvalidArgument);
  norm.norm.groups = 2;
  norm.norm.rows = 5;
  EXPECT_EQ(code(lane_->MatMulGatedNorm(norm)), kernels::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace deltafill::test
