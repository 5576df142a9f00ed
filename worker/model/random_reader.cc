#include "worker/model/random_reader.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "statestore/sha256.h"
#include "worker/model/fingerprint.h"
#include "worker/model/float_formats.h"
#include "worker/model/safetensors.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {

ModelFingerprint RandomFingerprint(const ModelConfig& config, uint64_t seed) {
  Sha256 hash;
  hash.Update(
      absl::StrCat("deltafill.random-weights.1\nseed=", seed, "\n", CanonicalArchitecture(config)));
  ModelFingerprint fingerprint;
  fingerprint.bytes = hash.Finish();
  return fingerprint;
}

RandomReader::RandomReader(const ModelConfig& config, uint64_t seed, kernels::Backend& backend,
                           LoadProgress& progress)
    : seed_(seed),
      fingerprint_(RandomFingerprint(config, seed)),
      backend_(backend),
      progress_(progress),
      vectors_(&backend) {
  for (InitialTensor& tensor : PlanInitialTensors(config)) {
    const std::string name = tensor.plan.name;
    tensors_.emplace(name, std::move(tensor));
  }
}

absl::StatusOr<const InitialTensor*> RandomReader::Find(const std::string& name,
                                                        int64_t elements) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return absl::DataLossError(absl::StrCat("random weights: tensor '", name, "' is not planned"));
  }
  const uint64_t planned = ElementCount(found->second.plan.shape).value_or(0);
  if (planned != static_cast<uint64_t>(elements)) {
    return absl::DataLossError(absl::StrCat("random weights: tensor '", name, "' has ", planned,
                                            " values, ", elements, " are wanted"));
  }
  return &found->second;
}

std::vector<std::byte> RandomReader::HostBytes(
    const std::vector<const InitialTensor*>& tensors) const {
  std::vector<std::byte> bytes;
  for (const InitialTensor* tensor : tensors) {
    const uint64_t count = *ElementCount(tensor->plan.shape);
    const std::vector<std::byte> values = InitialBytes(*tensor, seed_, 0, count);
    bytes.insert(bytes.end(), values.begin(), values.end());
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<kernels::Weight>> RandomReader::Matrix(
    const std::vector<MatrixName>& parts, int64_t columns) {
  std::vector<const InitialTensor*> tensors;
  int64_t rows = 0;
  uint64_t bytes = 0;
  bool one_scale = true;
  for (const MatrixName& part : parts) {
    DELTAFILL_TRY_ASSIGN(tensor, Find(part.name, part.rows * columns));
    tensors.push_back(tensor);
    rows += part.rows;
    bytes += TensorBytes(tensor->plan);
    one_scale = one_scale && tensor->values == InitialValues::kNormal &&
                tensor->scale == tensors.front()->scale;
  }
  std::unique_ptr<kernels::Weight> weight;
  kernels::Status made{kernels::StatusCode::kUnsupported, ""};
  if (one_scale) {
    const float limit = static_cast<float>(tensors.front()->scale * std::sqrt(3.0));
    made = backend_.NewRandomWeight(InitialStream(seed_, parts.front().name), limit, rows, columns,
                                    &weight);
  }
  if (made.code() == kernels::StatusCode::kUnsupported) {
    made = backend_.NewWeight(HostBytes(tensors).data(), kernels::DType::kBF16, rows, columns,
                              &weight);
  }
  DELTAFILL_TRY(made);
  progress_.Add(bytes);
  return weight;
}

absl::StatusOr<std::unique_ptr<kernels::LatentProjection>> RandomReader::LatentProjection(
    const std::string& name, const kernels::LatentShape& shape) {
  DELTAFILL_TRY_ASSIGN(tensor, Find(name, shape.ProjectionRows() * shape.rank));
  const std::vector<std::byte> bytes = HostBytes({tensor});
  std::unique_ptr<kernels::LatentProjection> projection;
  DELTAFILL_TRY(
      backend_.NewLatentProjection(bytes.data(), kernels::DType::kBF16, shape, &projection));
  progress_.Add(bytes.size());
  return projection;
}

absl::StatusOr<DeviceBuffer> RandomReader::Vector(const std::vector<VectorName>& parts) {
  std::vector<float> values;
  for (const VectorName& part : parts) {
    int64_t elements = 1;
    for (int64_t dim : part.dims) elements *= dim;
    DELTAFILL_TRY_ASSIGN(tensor, Find(part.name, elements));
    const std::vector<std::byte> bytes = HostBytes({tensor});
    const size_t start = values.size();
    values.resize(start + static_cast<size_t>(elements));
    if (*KernelDType(tensor->plan.dtype) == kernels::DType::kF32) {
      std::memcpy(values.data() + start, bytes.data(), bytes.size());
    } else {
      for (size_t i = 0; i < static_cast<size_t>(elements); ++i) {
        uint16_t bits;
        std::memcpy(&bits, bytes.data() + 2 * i, 2);
        values[start + i] = FloatFromBf16(bits);
      }
    }
    progress_.Add(bytes.size());
  }
  return vectors_.Upload(values);
}

}  // namespace deltafill::worker
