#include "worker/runtime/finite_scan.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace deltafill::worker {
namespace {

// A value is finite unless its exponent is all ones. The inner loop has no exit, so that it is
// vectorised; only a chunk with a hit is looked at value by value.
template <typename Word>
size_t FindExponent(std::span<const std::byte> bytes, Word exponent) {
  constexpr size_t kChunk = 1024;
  const size_t count = bytes.size() / sizeof(Word);
  Word chunk[kChunk];
  for (size_t first = 0; first < count; first += kChunk) {
    const size_t size = std::min(kChunk, count - first);
    std::memcpy(chunk, bytes.data() + first * sizeof(Word), size * sizeof(Word));
    Word hits = 0;
    for (size_t i = 0; i < size; ++i) {
      hits |= static_cast<Word>((chunk[i] & exponent) == exponent);
    }
    if (hits == 0) continue;
    for (size_t i = 0; i < size; ++i) {
      if ((chunk[i] & exponent) == exponent) return first + i;
    }
  }
  return count;
}

const char* KindName(PartKind kind) {
  switch (kind) {
    case PartKind::kRecurrent:
      return "recurrent state";
    case PartKind::kConvTail:
      return "convolution tail";
    case PartKind::kLatent:
      return "latent";
    case PartKind::kLogits:
      return "logits";
  }
  return "unknown kind";
}

// The head that a value of an entry belongs to; see StateLayout for the shapes.
size_t HeadOf(const StateLayout& layout, const StateEntry& entry, size_t index) {
  const StateEntry* recurrent = layout.Find(entry.layer, PartKind::kRecurrent);
  if (recurrent == nullptr) return 0;
  const size_t heads = recurrent->shape[0];
  const size_t value_dim = recurrent->shape[1];
  const size_t key_dim = recurrent->shape[2];
  if (entry.kind == PartKind::kRecurrent) return index / (value_dim * key_dim);
  const size_t channel = index / entry.shape[1];
  const size_t key_channels = heads * key_dim;
  if (channel < 2 * key_channels) return channel % key_channels / key_dim;
  return (channel - 2 * key_channels) / value_dim;
}

}  // namespace

size_t FindNonFinite(PartDType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case PartDType::kF32:
      return FindExponent<uint32_t>(bytes, 0x7f800000u);
    case PartDType::kBF16:
      return FindExponent<uint16_t>(bytes, 0x7f80);
    case PartDType::kF16:
      return FindExponent<uint16_t>(bytes, 0x7c00);
  }
  return 0;
}

absl::Status CheckStateFinite(const StateLayout& layout, const std::byte* state) {
  for (const StateEntry& entry : layout.entries) {
    const size_t values = entry.bytes / (entry.dtype == PartDType::kF32 ? 4 : 2);
    const size_t found = FindNonFinite(entry.dtype, {state + entry.offset, entry.bytes});
    if (found == values) continue;
    return absl::InternalError(absl::StrCat(KindName(entry.kind), " of layer ", entry.layer,
                                            ", head ", HeadOf(layout, entry, found),
                                            ": a value is not finite"));
  }
  return absl::OkStatus();
}

absl::Status CheckLogitsFinite(std::span<const float> logits, const char* what) {
  const size_t found = FindNonFinite(PartDType::kF32, std::as_bytes(logits));
  if (found == logits.size()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": the logit of token ", found, " is not finite"));
}

}  // namespace deltafill::worker
