// The seam behind which layers are kinds: a sequence mixer (KDA, latent attention) and an MLP
// (dense, mixture of experts). A pass walks packed rows through them, layer by layer.
#ifndef DELTAFILL_WORKER_MODEL_LAYER_H_
#define DELTAFILL_WORKER_MODEL_LAYER_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/operators.h"
#include "worker/model/model.h"

namespace deltafill::worker {

struct PassPointers;

// The rows of one pass and where layers keep what they compute on the way. All rows have the
// backend's activation dtype.
struct PassRows {
  kernels::Operators* operators = nullptr;
  kernels::SequenceOffsets offsets;  // of the packed sequences; decoding: one row each
  int64_t rows = 0;
  bool step = false;             // decoding: a row a sequence
  kernels::MutableRows hidden;   // [rows, hidden]: the residual stream
  kernels::MutableRows normed;   // [rows, hidden]: the layer's normalised input
  std::byte* scratch = nullptr;  // row_capacity x the widest ScratchWidth of the layers
  int64_t row_capacity = 0;      // a multiple of 16
  kernels::DType dtype = kernels::DType::kF32;
  PassPointers* pointers = nullptr;  // host arrays that are kept between calls

  // Scratch columns [first_column, first_column + width) as rows of their own.
  kernels::MutableRows Scratch(int64_t first_column, int64_t width) const {
    return {scratch + static_cast<size_t>(row_capacity * first_column) * kernels::SizeOf(dtype),
            dtype, width};
  }
};

// Columns from `first` on of some rows, or rows from `first` on.
inline kernels::MutableRows ColumnsFrom(kernels::MutableRows rows, int64_t first) {
  rows.data =
      static_cast<std::byte*>(rows.data) + static_cast<size_t>(first) * kernels::SizeOf(rows.dtype);
  return rows;
}
inline kernels::MutableRows RowsFrom(kernels::MutableRows rows, int64_t first) {
  return ColumnsFrom(rows, first * rows.row_stride);
}

// Adds its output for rows.normed to rows.hidden. Immutable and thread-safe; all that changes is in
// the pass.
class SequenceMixer {
 public:
  virtual ~SequenceMixer() = default;
  virtual int64_t ScratchWidth() const = 0;  // elements a row

  // ranges[i] owns the rows [offsets[i], offsets[i + 1]). Takes the boundary states before the
  // ranges from their ports, hands on those after them, and writes the captures.
  virtual absl::Status Prefill(const PassRows& rows, std::span<const RangeWork> ranges) const = 0;

  // sequences[i] is row i's; its state is updated in place.
  virtual absl::Status Decode(const PassRows& rows, std::span<const DecodeRow> sequences) const = 0;
};

// As above, without a state.
class LayerMlp {
 public:
  virtual ~LayerMlp() = default;
  virtual int64_t ScratchWidth() const = 0;
  virtual absl::Status Forward(const PassRows& rows) const = 0;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_LAYER_H_
