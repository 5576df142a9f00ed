#include "worker/model/checkpoint_reader.h"

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

// Tensors one after the other in host memory, 64-byte aligned if a backend may ask for it: the
// file's own bytes where they will do, else a copy that lives as long as this does.
struct StackedTensors {
  kernels::DType dtype = kernels::DType::kF32;
  const void* host = nullptr;
  std::vector<std::byte> bytes;
  std::vector<float> floats;

  explicit StackedTensors(const std::vector<const CheckpointTensor*>& tensors) {
    bool same_dtype = true;
    for (const CheckpointTensor* tensor : tensors) {
      same_dtype = same_dtype && tensor->entry.dtype == tensors.front()->entry.dtype;
    }
    if (!same_dtype) {
      for (const CheckpointTensor* tensor : tensors) {
        AppendFloats(*tensor, *KernelDType(tensor->entry.dtype), &floats);
      }
      host = floats.data();
      return;
    }
    dtype = *KernelDType(tensors.front()->entry.dtype);
    host = tensors.front()->bytes().data();
    // Tensors of a file need not be aligned for their elements.
    if (tensors.size() == 1 && reinterpret_cast<uintptr_t>(host) % 64 == 0) return;
    size_t total = 0;
    for (const CheckpointTensor* tensor : tensors) total += tensor->bytes().size();
    bytes.reserve(total);
    for (const CheckpointTensor* tensor : tensors) {
      bytes.insert(bytes.end(), tensor->bytes().begin(), tensor->bytes().end());
    }
    host = bytes.data();
  }
};

}  // namespace

absl::StatusOr<const CheckpointTensor*> CheckpointReader::GetChecked(
    const std::string& name, const std::vector<int64_t>& dims) const {
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

absl::StatusOr<std::unique_ptr<kernels::Weight>> CheckpointReader::Matrix(
    const std::vector<MatrixName>& parts, int64_t columns) {
  std::vector<const CheckpointTensor*> tensors;
  int64_t rows = 0;
  for (const MatrixName& part : parts) {
    DELTAFILL_TRY_ASSIGN(tensor, GetChecked(part.name, {part.rows, columns}));
    tensors.push_back(tensor);
    rows += part.rows;
  }
  const StackedTensors stacked(tensors);
  std::unique_ptr<kernels::Weight> weight;
  DELTAFILL_TRY(backend_.NewWeight(stacked.host, stacked.dtype, rows, columns, &weight));
  for (const CheckpointTensor* tensor : tensors) progress_.Add(tensor->bytes().size());
  return weight;
}

absl::StatusOr<std::unique_ptr<kernels::LatentProjection>> CheckpointReader::LatentProjection(
    const std::string& name, const kernels::LatentShape& shape) {
  DELTAFILL_TRY_ASSIGN(tensor, GetChecked(name, {shape.ProjectionRows(), shape.rank}));
  const StackedTensors stacked({tensor});
  std::unique_ptr<kernels::LatentProjection> projection;
  DELTAFILL_TRY(backend_.NewLatentProjection(stacked.host, stacked.dtype, shape, &projection));
  progress_.Add(tensor->bytes().size());
  return projection;
}

absl::StatusOr<DeviceBuffer> CheckpointReader::Vector(const std::vector<VectorName>& parts) {
  std::vector<float> floats;
  for (const VectorName& part : parts) {
    DELTAFILL_TRY_ASSIGN(tensor, GetChecked(part.name, part.dims));
    AppendFloats(*tensor, *KernelDType(tensor->entry.dtype), &floats);
    progress_.Add(tensor->bytes().size());
  }
  return vectors_.Upload(floats);
}

}  // namespace deltafill::worker
