#include "kernels/cuda/weight.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cpu/dtype_conversion.h"

namespace deltafill::kernels::cuda {
namespace {

constexpr int64_t kPieceElements = int64_t{4} << 20;

template <typename Source>
void ConvertRun(const Source* from, int64_t elements, cpu::Bf16* to) {
  for (int64_t i = 0; i < elements; ++i) to[i] = cpu::ToBf16(cpu::ToFloat(from[i]));
}

// `first` counts elements of the whole tensor.
void Convert(const void* host, DType dtype, int64_t first, int64_t elements, cpu::Bf16* to) {
  switch (dtype) {
    case DType::kF32:
      return ConvertRun(static_cast<const float*>(host) + first, elements, to);
    case DType::kF16:
      return ConvertRun(static_cast<const cpu::Fp16*>(host) + first, elements, to);
    case DType::kBF16:
      std::memcpy(to, static_cast<const cpu::Bf16*>(host) + first,
                  static_cast<size_t>(elements) * sizeof(cpu::Bf16));
  }
}

}  // namespace

Status ProductSets::Get(const void* w, int64_t out_features, int64_t in_features,
                        cudaStream_t stream, std::shared_ptr<const ProductSet>* out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<const ProductSet>& kept = sets_[{out_features, in_features}];
  if (kept == nullptr) {
    auto made = std::make_shared<ProductSet>();
    for (const DType y_dtype : {DType::kBF16, DType::kF32}) {
      const ProductPurpose purpose = {w, out_features, in_features, y_dtype};
      const Status status = PinAlgorithms(*library_, purpose, stream, &made->For(y_dtype));
      if (!status.ok()) return status;
    }
    kept = std::move(made);
  }
  *out = kept;
  return {};
}

std::vector<ProductChoice> ProductSets::choices() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<ProductChoice> choices;
  for (const auto& [shape, set] : sets_) {
    if (set == nullptr) continue;  // its probe failed
    for (const DType y_dtype : {DType::kBF16, DType::kF32}) {
      ProductChoice choice = {shape.first, shape.second, y_dtype, {}};
      for (const PinnedAlgorithm& pinned : set->For(y_dtype)) {
        choice.algorithms.push_back(pinned.description);
      }
      choices.push_back(std::move(choice));
    }
  }
  return choices;
}

Status AsCudaWeight(const char* field, const Weight* weight, const CudaWeight** out) {
  if (weight == nullptr) return InvalidArgument(std::string(field) + ": is null");
  *out = dynamic_cast<const CudaWeight*>(weight);
  if (*out != nullptr) return {};
  return InvalidArgument(std::string(field) + ": was not made by a CUDA backend");
}

Status WeightUpload::Copy(const void* host, DType dtype, int64_t elements, void* device_to) {
  int64_t first = 0;
  for (int piece = 0; first < elements; piece ^= 1) {
    const int64_t count = std::min(kPieceElements, elements - first);
    const size_t bytes = static_cast<size_t>(count) * sizeof(cpu::Bf16);
    // Always the same size, so that a piece is locked once.
    if (Status s = pieces_[piece].Acquire(kPieceElements * sizeof(cpu::Bf16)); !s.ok()) return s;
    Convert(host, dtype, first, count, pieces_[piece].as<cpu::Bf16>());
    uint8_t* const to = static_cast<uint8_t*>(device_to) + first * sizeof(cpu::Bf16);
    if (Status s = pieces_[piece].CopyTo(to, bytes, stream_.get()); !s.ok()) return s;
    first += count;
  }
  return stream_.Synchronize();
}

}  // namespace deltafill::kernels::cuda
