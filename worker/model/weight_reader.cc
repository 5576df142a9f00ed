#include "worker/model/weight_reader.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/model/float_formats.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

std::vector<int64_t> WithoutOnes(const std::vector<int64_t>& dims) {
  std::vector<int64_t> kept;
  for (int64_t dim : dims) {
    if (dim != 1) kept.push_back(dim);
  }
  return kept;
}

// Appends the tensor's values as fp32.
void AppendFloats(const CheckpointTensor& tensor, kernels::DType dtype, std::vector<float>* out) {
  const std::span<const std::byte> bytes = tensor.bytes();
  const size_t count = bytes.size() / kernels::SizeOf(dtype);
  const size_t start = out->size();
  out->resize(start + count);
  if (dtype == kernels::DType::kF32) {
    std::memcpy(out->data() + start, bytes.data(), bytes.size());
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + 2 * i, 2);
    (*out)[start + i] = dtype == kernels::DType::kBF16 ? FloatFromBf16(bits) : FloatFromHalf(bits);
  }
}

}  // namespace

absl::StatusOr<const CheckpointTensor*> WeightReader::GetChecked(const std::string& name,
                                                                 const std::vector<int64_t>& dims) {
  DELTAFILL_TRY_ASSIGN(tensor, checkpoint_.Get(name));
  const std::string place = absl::StrCat(tensor->file->path(), ": tensor '", name, "'");
  if (!KernelDType(tensor->entry.dtype).has_value()) {
    return absl::DataLossError(
        absl::StrCat(place, " is ", tensor->entry.dtype, "; it must be F32, BF16 or F16"));
  }
  if (WithoutOnes(tensor->entry.shape) != WithoutOnes(dims)) {
    return absl::DataLossError(
        absl::StrCat(place, " has shape [", absl::StrJoin(tensor->entry.shape, ", "),
                     "]; config.json wants [", absl::StrJoin(dims, ", "), "]"));
  }
  return tensor;
}

absl::StatusOr<std::unique_ptr<kernels::Weight>> WeightReader::Matrix(
    const std::vector<MatrixName>& parts, int64_t columns) {
  std::vector<const CheckpointTensor*> tensors;
  int64_t rows = 0;
  bool same_dtype = true;
  for (const MatrixName& part : parts) {
    DELTAFILL_TRY_ASSIGN(tensor, GetChecked(part.name, {part.rows, columns}));
    tensors.push_back(tensor);
    rows += part.rows;
    same_dtype = same_dtype && tensor->entry.dtype == tensors.front()->entry.dtype;
  }
  kernels::DType dtype = *KernelDType(tensors.front()->entry.dtype);
  const void* host = tensors.front()->bytes().data();
  std::vector<std::byte> stacked;
  std::vector<float> floats;
  if (!same_dtype) {
    for (const CheckpointTensor* tensor : tensors) {
      AppendFloats(*tensor, *KernelDType(tensor->entry.dtype), &floats);
    }
    dtype = kernels::DType::kF32;
    host = floats.data();
  } else if (tensors.size() > 1 || reinterpret_cast<uintptr_t>(host) % 64 != 0) {
    // Tensors of a file need not be aligned for their elements.
    for (const CheckpointTensor* tensor : tensors) {
      stacked.insert(stacked.end(), tensor->bytes().begin(), tensor->bytes().end());
    }
    host = stacked.data();
  }
  std::unique_ptr<kernels::Weight> weight;
  DELTAFILL_TRY(backend_.NewWeight(host, dtype, rows, columns, &weight));
  return weight;
}

absl::StatusOr<DeviceBuffer> WeightReader::Vector(const std::vector<std::string>& names,
                                                  const std::vector<int64_t>& dims) {
  std::vector<float> floats;
  for (const std::string& name : names) {
    DELTAFILL_TRY_ASSIGN(tensor, GetChecked(name, dims));
    AppendFloats(*tensor, *KernelDType(tensor->entry.dtype), &floats);
  }
  const size_t bytes = floats.size() * sizeof(float);
  DELTAFILL_TRY_ASSIGN(buffer, DeviceBuffer::Allocate(backend_, bytes));
  DELTAFILL_TRY(operators_.CopyFromHost(buffer.get(), floats.data(), bytes));
  DELTAFILL_TRY(operators_.Synchronize());
  return std::move(buffer);
}

}  // namespace deltafill::worker
