// What the tests of the CPU operators share: a backend of the instruction set under test, and rows
// that sit at odd places in larger buffers.
#ifndef DELTAFILL_TESTS_KERNELS_CPU_BACKEND_TEST_BASE_H_
#define DELTAFILL_TESTS_KERNELS_CPU_BACKEND_TEST_BASE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/operators.h"

namespace deltafill::kernels {

// A process has one instruction set, so ctest runs each binary once a set.
inline std::string IsaUnderTest() {
  const char* isa = std::getenv("DELTAFILL_TEST_ISA");
  return isa != nullptr ? isa : "";
}

#define ASSERT_STATUS_OK(expression)                     \
  do {                                                   \
    const ::deltafill::kernels::Status s = (expression); \
    ASSERT_TRUE(s.ok()) << s.message();                  \
  } while (false)

// The message begins with `start` and holds `part`.
inline void ExpectStatus(const Status& status, StatusCode code, const std::string& start,
                         const std::string& part = "") {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_THAT(status.message(), ::testing::StartsWith(start));
  EXPECT_THAT(status.message(), ::testing::HasSubstr(part));
}

inline void ExpectInvalid(const Status& status, const std::string& start,
                          const std::string& part = "") {
  ExpectStatus(status, StatusCode::kInvalidArgument, start, part);
}

// Skips if the machine lacks the instruction set under test.
class CpuBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = NewCpuBackend({.isa = IsaUnderTest()}, &backend_);
    if (!status.ok() && !IsaUnderTest().empty()) GTEST_SKIP() << status.message();
    ASSERT_STATUS_OK(status);
  }

  std::unique_ptr<Operators> Lane(int threads) {
    std::unique_ptr<Operators> lane;
    const Status status = backend_->NewOperators(threads, &lane);
    EXPECT_TRUE(status.ok()) << status.message();
    return lane;
  }

  std::unique_ptr<Weight> NewWeight(std::span<const float> w, int64_t out, int64_t in) {
    std::unique_ptr<Weight> weight;
    const Status status = backend_->NewWeight(w.data(), DType::kF32, out, in, &weight);
    EXPECT_TRUE(status.ok()) << status.message();
    return weight;
  }

  std::unique_ptr<Backend> backend_;
};

// A backend with bf16 products. Skips where the instruction set has none.
inline void MakeBf16Backend(std::unique_ptr<Backend>* backend) {
  const Status status =
      NewCpuBackend({.compute_dtype = DType::kBF16, .isa = IsaUnderTest()}, backend);
  if (status.ok()) return;
  ASSERT_TRUE(status.code() == StatusCode::kUnsupported || !IsaUnderTest().empty())
      << status.message();
  GTEST_SKIP() << status.message();
}

// [rows, width] inside a buffer with a padded stride and an odd start. What lies around the rows is
// a marker, which outputs must leave alone.
class PlacedRows {
 public:
  static constexpr float kMarker = -12345.0f;

  PlacedRows(int64_t rows, int64_t width, int64_t start, int64_t padding)
      : rows_(rows),
        width_(width),
        start_(start),
        stride_(width + padding),
        elements_(static_cast<size_t>(start + rows * stride_ + padding), kMarker) {}
  PlacedRows(std::span<const float> dense, int64_t rows, int64_t width, int64_t start,
             int64_t padding)
      : PlacedRows(rows, width, start, padding) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < width; ++i) {
        *At(row, i) = dense[static_cast<size_t>(row * width + i)];
      }
    }
  }

  operator MutableRows() { return {elements_.data() + start_, DType::kF32, stride_}; }
  operator ConstRows() { return MutableRows(*this); }

  std::vector<float> Dense() {
    std::vector<float> dense;
    for (int64_t row = 0; row < rows_; ++row)
      dense.insert(dense.end(), At(row, 0), At(row, width_));
    return dense;
  }

  // True if nothing but the rows was written.
  bool SurroundingsIntact() {
    size_t markers = 0;
    for (float element : elements_) markers += element == kMarker ? 1 : 0;
    return markers == elements_.size() - static_cast<size_t>(rows_ * width_);
  }

 private:
  float* At(int64_t row, int64_t i) { return elements_.data() + start_ + row * stride_ + i; }

  int64_t rows_;
  int64_t width_;
  int64_t start_;
  int64_t stride_;
  std::vector<float> elements_;
};

// Rows [begin, begin + rows) of a dense [*, width].
inline std::vector<float> Slice(std::span<const float> dense, int64_t begin, int64_t rows,
                                int64_t width) {
  const auto first = dense.begin() + begin * width;
  return {first, first + rows * width};
}

// A run of rows that row-invariance tests compute by itself.
struct RowRun {
  int64_t begin = 0;
  int64_t rows = 0;
};
inline constexpr RowRun kRowRuns[] = {{0, 1},  {7, 1},   {63, 1},  {64, 1},   {149, 1}, {0, 64},
                                      {1, 64}, {37, 65}, {64, 86}, {100, 50}, {3, 127}};
inline constexpr int64_t kInvarianceRows = 150;

}  // namespace deltafill::kernels

#endif  // DELTAFILL_TESTS_KERNELS_CPU_BACKEND_TEST_BASE_H_
