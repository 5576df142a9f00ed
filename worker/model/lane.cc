#include "worker/model/lane.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

constexpr int64_t kRowAlignment = 16;  // 64 bytes of fp32: every scratch slice starts aligned
constexpr int64_t kLaneRowsMax = int64_t{1} << 24;

int64_t RowCapacity(const LaneSizes& sizes) {
  return (sizes.rows_max + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

struct BufferBytes {
  size_t rows;  // of the residual stream, and of its norm
  size_t scratch;
  size_t logits;
};

BufferBytes BytesOf(const LaneSizes& sizes, kernels::DType activation) {
  const size_t column_bytes = static_cast<size_t>(RowCapacity(sizes)) * kernels::SizeOf(activation);
  return {.rows = column_bytes * static_cast<size_t>(sizes.hidden),
          .scratch = column_bytes * static_cast<size_t>(sizes.scratch_width),
          .logits = static_cast<size_t>(kernels::kBlockTokens * sizes.vocabulary) * sizeof(float)};
}

}  // namespace

size_t LaneBytes(const LaneSizes& sizes, kernels::DType activation) {
  const BufferBytes bytes = BytesOf(sizes, activation);
  return 2 * bytes.rows + bytes.scratch + bytes.logits;
}

absl::StatusOr<std::shared_ptr<Lane>> Lane::Create(kernels::Backend& backend, int threads,
                                                   const LaneSizes& sizes) {
  if (sizes.rows_max < 1 || sizes.rows_max > kLaneRowsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows_max ", sizes.rows_max, " is not in [1, ", kLaneRowsMax, "]"));
  }
  std::shared_ptr<Lane> lane(new Lane);
  lane->sizes_ = sizes;
  lane->dtype_ = backend.activation_dtype();
  lane->row_capacity_ = RowCapacity(sizes);
  DELTAFILL_TRY(backend.NewOperators(threads, &lane->operators_));

  const BufferBytes lane_bytes = BytesOf(sizes, lane->dtype_);
  const struct {
    DeviceBuffer* buffer;
    size_t bytes;
  } buffers[] = {
      {&lane->hidden_, lane_bytes.rows},
      {&lane->normed_, lane_bytes.rows},
      {&lane->scratch_, lane_bytes.scratch},
      {&lane->logits_, lane_bytes.logits},
  };
  for (const auto& [buffer, bytes] : buffers) {
    auto allocated = DeviceBuffer::Allocate(backend, bytes);
    if (!allocated.ok()) {
      return absl::ResourceExhaustedError(absl::StrCat("a lane of ", sizes.rows_max, " rows needs ",
                                                       LaneBytes(sizes, lane->dtype_),
                                                       " bytes: ", allocated.status().message()));
    }
    *buffer = std::move(*allocated);
  }
  return lane;
}

Lane::~Lane() {
  if (operators_ != nullptr) (void)operators_->Synchronize();
}

PassRows Lane::Rows(kernels::SequenceOffsets sequence_offsets) {
  PassRows rows;
  rows.operators = operators_.get();
  rows.offsets = sequence_offsets;
  rows.rows = sequence_offsets.back();
  rows.hidden = {hidden_.get(), dtype_, sizes_.hidden};
  rows.normed = {normed_.get(), dtype_, sizes_.hidden};
  rows.scratch = static_cast<std::byte*>(scratch_.get());
  rows.row_capacity = row_capacity_;
  rows.dtype = dtype_;
  rows.pointers = &pointers_;
  return rows;
}

}  // namespace deltafill::worker
