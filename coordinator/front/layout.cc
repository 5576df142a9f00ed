#include "coordinator/front/layout.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace deltafill::coordinator {
namespace {

void AppendRecurrent(const StateDims& dims, HeadRange heads, std::span<const std::byte> recurrent,
                     std::string* bytes) {
  const size_t head = size_t{dims.key_dim} * dims.value_dim * sizeof(float);
  bytes->append(reinterpret_cast<const char*>(recurrent.data()) + heads.begin * head,
                (heads.end - heads.begin) * head);
}

// channels: of one head; first_channel: where this projection begins in the part.
void AppendConv(TensorLayout layout, const StateDims& dims, HeadRange heads, uint32_t channels,
                size_t first_channel, std::span<const std::byte> conv, std::string* bytes) {
  const size_t rows = size_t{heads.end - heads.begin} * channels;
  const size_t row = dims.conv_rows * DTypeBytes(dims.conv_dtype);
  const auto* from = reinterpret_cast<const char*>(conv.data()) +
                     (first_channel + size_t{heads.begin} * channels) * row;
  if (layout == TensorLayout::kCanonical) {
    bytes->append(from, rows * row);
    return;
  }
  for (size_t channel = 0; channel < rows; ++channel) {
    bytes->append(DTypeBytes(dims.conv_dtype), '\0');
    bytes->append(from + channel * row, row);
  }
}

// The heads of q and k that these heads of values use.
HeadRange KeyHeads(const StateDims& dims, HeadRange heads) {
  return {heads.begin / dims.sharing, (heads.end + dims.sharing - 1) / dims.sharing};
}

}  // namespace

absl::StatusOr<TensorLayout> ParseTensorLayout(std::string_view name) {
  if (name.empty() || name == "canonical") return TensorLayout::kCanonical;
  if (name == "fla") return TensorLayout::kFla;
  return absl::InvalidArgumentError("layout: unknown; there are \"canonical\" and \"fla\"");
}

absl::StatusOr<StateDims> DeriveStateDims(const PartHeader& recurrent, const PartHeader& conv) {
  StateDims dims;
  dims.heads = recurrent.shape[0];
  dims.value_dim = recurrent.shape[1];
  dims.key_dim = recurrent.shape[2];
  dims.conv_rows = conv.shape[1];
  dims.conv_dtype = conv.dtype;
  const uint64_t values = uint64_t{dims.heads} * dims.value_dim;
  const uint64_t key_pair = 2 * uint64_t{dims.key_dim};  // a head's channels of q and k
  const uint64_t keys = conv.shape[0] > values ? conv.shape[0] - values : 0;
  const uint64_t key_heads = key_pair == 0 || keys % key_pair != 0 ? 0 : keys / key_pair;
  if (recurrent.kind != PartKind::kRecurrent || conv.kind != PartKind::kConvTail ||
      recurrent.dtype != PartDType::kF32 || recurrent.shape[3] != 1 || conv.shape[2] != 1 ||
      conv.shape[3] != 1 || key_heads == 0 || dims.heads % key_heads != 0 ||
      recurrent.layers != conv.layers) {
    return absl::InternalError("the state's recurrent and convolution parts do not fit together");
  }
  dims.sharing = static_cast<uint32_t>(dims.heads / key_heads);
  return dims;
}

absl::StatusOr<HeadRange> CheckHeadRange(uint32_t begin, uint32_t end, const StateDims& dims) {
  if (end > dims.heads) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_end: ", end, " is above the model's ", dims.heads, " heads"));
  }
  if (end == 0) end = dims.heads;
  if (begin < end) return HeadRange{begin, end};
  return absl::InvalidArgumentError(
      absl::StrCat("head_begin: ", begin, " is not below head_end ", end));
}

uint64_t TensorShape::ByteCount() const {
  uint64_t bytes = DTypeBytes(dtype);
  for (uint64_t extent : shape) bytes *= extent;
  return bytes;
}

std::vector<TensorShape> LayerShapes(TensorLayout layout, uint32_t layer, const StateDims& dims,
                                     HeadRange heads) {
  const uint64_t count = heads.end - heads.begin;
  const HeadRange key_heads = KeyHeads(dims, heads);
  const uint64_t key_count = key_heads.end - key_heads.begin;
  const auto name = [layer](const char* tensor) {
    return absl::StrCat("layers.", layer, ".", tensor);
  };
  const auto conv = [&](const char* tensor, uint64_t rows, uint64_t channels) {
    TensorShape shape{name(tensor), dims.conv_dtype, {rows, channels, dims.conv_rows}};
    if (layout == TensorLayout::kFla) shape.shape = {1, rows * channels, dims.conv_rows + 1ull};
    return shape;
  };
  TensorShape recurrent{
      name("recurrent_state"), PartDType::kF32, {count, dims.value_dim, dims.key_dim}};
  if (layout == TensorLayout::kFla) recurrent.shape = {1, count, dims.value_dim, dims.key_dim};
  return {recurrent, conv("conv_state.q", key_count, dims.key_dim),
          conv("conv_state.k", key_count, dims.key_dim),
          conv("conv_state.v", count, dims.value_dim)};
}

std::string LayerBytes(TensorLayout layout, const StateDims& dims, HeadRange heads,
                       std::span<const std::byte> recurrent, std::span<const std::byte> conv) {
  const size_t keys = size_t{dims.heads / dims.sharing} * dims.key_dim;
  const HeadRange key_heads = KeyHeads(dims, heads);
  std::string bytes;
  AppendRecurrent(dims, heads, recurrent, &bytes);
  AppendConv(layout, dims, key_heads, dims.key_dim, 0, conv, &bytes);
  AppendConv(layout, dims, key_heads, dims.key_dim, keys, conv, &bytes);
  AppendConv(layout, dims, heads, dims.value_dim, 2 * keys, conv, &bytes);
  return bytes;
}

const char* DTypeName(PartDType dtype) {
  switch (dtype) {
    case PartDType::kBF16:
      return "BF16";
    case PartDType::kF16:
      return "F16";
    case PartDType::kF32:
      break;
  }
  return "F32";
}

size_t DTypeBytes(PartDType dtype) { return dtype == PartDType::kF32 ? 4 : 2; }

}  // namespace deltafill::coordinator
