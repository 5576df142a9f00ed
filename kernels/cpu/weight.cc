#include "kernels/cpu/weight.h"

#include <cstring>
#include <numeric>

#include "kernels/cpu/dtype_conversion.h"
#include "kernels/cpu/validate.h"

namespace deltafill::kernels::cpu {
namespace {

template <typename Element>
Element Convert(float x);
template <>
float Convert(float x) {
  return x;
}
template <>
Bf16 Convert(float x) {
  return ToBf16(x);
}

// Rows of a tile that are written together: one cache line of each stays in L1.
constexpr int64_t kTransposeRows = 64;

}  // namespace

Status CpuWeight::MakeForm(int64_t columns, TileForm* form) const {
  if (compute_dtype_ == DType::kBF16) {
    if (Status status = Bf16Product::Create(in_features_, columns, &form->product); !status.ok()) {
      return status;
    }
    form->elements = form->product->tile_elements();
    form->row_offsets = form->product->row_offsets();
    form->column_offsets = form->product->column_offsets();
    return {};
  }
  const int64_t stride = PaddedStride(columns);
  form->elements = in_features_ * stride;
  form->row_offsets.resize(static_cast<size_t>(in_features_));
  for (int64_t k = 0; k < in_features_; ++k) {
    form->row_offsets[static_cast<size_t>(k)] = k * stride;
  }
  form->column_offsets.resize(static_cast<size_t>(columns));
  std::iota(form->column_offsets.begin(), form->column_offsets.end(), int64_t{0});
  return {};
}

const void* CpuWeight::tile(int64_t tile) const {
  // Tiles before `tile` are all full.
  const size_t before = static_cast<size_t>(tile) * static_cast<size_t>(full_.elements);
  return elements_.as<char>() + before * SizeOf(compute_dtype_);
}

size_t CpuWeight::scratch_bytes() const {
  size_t bytes = 0;
  for (const TileForm* form : {&full_, &last_}) {
    if (form->product) bytes = std::max(bytes, form->product->scratch_bytes());
  }
  return bytes;
}

template <typename Source, typename Element>
void CpuWeight::Fill(const Source* source) {
  for (int64_t t = 0; t < tiles(); ++t) {
    const TileForm& form = this->form(t);
    Element* const to = static_cast<Element*>(const_cast<void*>(tile(t)));
    for (int64_t k_begin = 0; k_begin < in_features_; k_begin += kTransposeRows) {
      const int64_t k_end = std::min(k_begin + kTransposeRows, in_features_);
      for (int64_t column = 0; column < tile_columns(t); ++column) {
        const Source* from = source + (t * kTileColumns + column) * in_features_;
        Element* const to_column = to + form.column_offsets[static_cast<size_t>(column)];
        for (int64_t k = k_begin; k < k_end; ++k) {
          to_column[form.row_offsets[static_cast<size_t>(k)]] = Convert<Element>(ToFloat(from[k]));
        }
      }
    }
  }
}

Status CpuWeight::Create(const void* host_data, DType dtype, int64_t out_features,
                         int64_t in_features, DType compute_dtype, std::unique_ptr<Weight>* out) {
  if (Status status = ValidateWeight(host_data, dtype, out_features, in_features); !status.ok()) {
    return status;
  }
  std::unique_ptr<CpuWeight> weight(new CpuWeight);
  weight->out_features_ = out_features;
  weight->in_features_ = in_features;
  weight->compute_dtype_ = compute_dtype;
  const int64_t full_tiles = out_features / kTileColumns;
  const int64_t last_columns = out_features % kTileColumns;
  if (full_tiles > 0) {
    if (Status s = weight->MakeForm(kTileColumns, &weight->full_); !s.ok()) return s;
  }
  if (last_columns > 0) {
    if (Status s = weight->MakeForm(last_columns, &weight->last_); !s.ok()) return s;
  }
  const size_t bytes =
      static_cast<size_t>(full_tiles * weight->full_.elements + weight->last_.elements) *
      SizeOf(compute_dtype);
  if (!weight->elements_.Reserve(bytes)) return OutOfMemory("weight", bytes);
  // Padding between elements is multiplied in blocked bf16 layouts: it must be zero.
  std::memset(weight->elements_.as<void>(), 0, bytes);

  const auto fill = [&]<typename Source>(const Source* source) {
    if (compute_dtype == DType::kBF16) {
      weight->Fill<Source, Bf16>(source);
    } else {
      weight->Fill<Source, float>(source);
    }
  };
  switch (dtype) {
    case DType::kF32:
      fill(static_cast<const float*>(host_data));
      break;
    case DType::kBF16:
      fill(static_cast<const Bf16*>(host_data));
      break;
    case DType::kF16:
      fill(static_cast<const Fp16*>(host_data));
      break;
  }
  *out = std::move(weight);
  return {};
}

void CpuWeight::CopyRow(int64_t out_index, float* row) const {
  const int64_t t = out_index / kTileColumns;
  const TileForm& form = this->form(t);
  const int64_t column = form.column_offsets[static_cast<size_t>(out_index % kTileColumns)];
  const auto gather = [&](const auto* from) {
    for (int64_t k = 0; k < in_features_; ++k) {
      row[k] = ToFloat(from[column + form.row_offsets[static_cast<size_t>(k)]]);
    }
  };
  if (compute_dtype_ == DType::kBF16) {
    gather(static_cast<const Bf16*>(tile(t)));
  } else {
    gather(static_cast<const float*>(tile(t)));
  }
}

}  // namespace deltafill::kernels::cpu
