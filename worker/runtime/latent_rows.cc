#include "worker/runtime/latent_rows.h"

#include <algorithm>
#include <span>

#include "statestore/part.h"
#include "worker/model/status_steps.h"

namespace deltafill::worker {
namespace {

// Calls copy(page bytes, byte count) for each page's share of rows [begin, end), in order.
template <typename Copy>
absl::Status ForEachPage(const LatentCache& cache, uint32_t layer, uint64_t begin, uint64_t end,
                         Copy copy) {
  const size_t row_bytes = cache.layout().RowBytes();
  const std::span<void* const> pages = cache.Pages(layer);
  while (begin < end) {
    const uint64_t index = begin / kLatentPieceTokens;
    const uint64_t page_end = std::min((index + 1) * kLatentPieceTokens, end);
    DELTAFILL_TRY(
        copy(static_cast<std::byte*>(pages[index]) + (begin % kLatentPieceTokens) * row_bytes,
             (page_end - begin) * row_bytes));
    begin = page_end;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status GatherLatents(kernels::Operators& operators, const LatentCache& cache, uint32_t layer,
                           uint64_t begin, uint64_t end, std::byte* to) {
  return ForEachPage(cache, layer, begin, end, [&](const std::byte* rows, size_t bytes) {
    std::byte* const at = to;
    to += bytes;
    return operators.Copy(at, rows, bytes);
  });
}

absl::Status ScatterLatents(kernels::Operators& operators, const std::byte* from, bool from_host,
                            uint32_t layer, uint64_t begin, uint64_t end, LatentCache& cache) {
  return ForEachPage(cache, layer, begin, end, [&](std::byte* rows, size_t bytes) {
    const std::byte* const at = from;
    from += bytes;
    return from_host ? operators.CopyFromHost(rows, at, bytes) : operators.Copy(rows, at, bytes);
  });
}

}  // namespace deltafill::worker
