// Element types and strided row views shared by every operator.
#ifndef DELTAFILL_KERNELS_TENSOR_H_
#define DELTAFILL_KERNELS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace deltafill::kernels {

// Tokens in a block: the unit of arithmetic, hashing and storage (DESIGN words: block).
inline constexpr int64_t kBlockTokens = 64;

// Rows of the causal short convolution's state: kernel size 4 minus one.
inline constexpr int kConvKernelSize = 4;
inline constexpr int kConvTailRows = kConvKernelSize - 1;

enum class DType : uint8_t { kF32 = 0, kBF16 = 1, kF16 = 2 };

constexpr size_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

// A [rows, width] view; width elements of a row are contiguous, rows are row_stride elements apart.
// Operators state the number of rows and the width themselves. 64-bit offsets throughout: a
// million tokens of 32 heads x 128 channels pass 2^31 elements.
struct ConstRows {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t row_stride = 0;  // in elements, >= width
};

struct MutableRows {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t row_stride = 0;  // in elements, >= width
  operator ConstRows() const { return {data, dtype, row_stride}; }
};

// Packed sequences: sequence s owns rows [offsets[s], offsets[s + 1]). offsets has one more element
// than there are sequences, starts at 0 and does not decrease; sequences of length 0 are legal.
// Host memory. Every sequence starts on a block boundary of its prompt, so blocks are counted from
// its first row.
using SequenceOffsets = std::span<const int64_t>;

}  // namespace deltafill::kernels

#endif  // DELTAFILL_KERNELS_TENSOR_H_
