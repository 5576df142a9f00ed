#include "worker/runtime/latent_rows.h"

#include <algorithm>
#include <cstring>

#include "statestore/part.h"

namespace deltafill::worker {
namespace {

// Calls use(page bytes, byte count) for each page's share of rows [begin, end), in order.
template <typename Use>
void ForEachPage(const LatentCache& cache, uint32_t layer, uint64_t begin, uint64_t end, Use use) {
  const size_t row_bytes = cache.layout().RowBytes();
  const std::span<void* const> pages = cache.Pages(layer);
  while (begin < end) {
    const uint64_t index = begin / kLatentPieceTokens;
    const uint64_t page_end = std::min((index + 1) * kLatentPieceTokens, end);
    use(static_cast<std::byte*>(pages[index]) + (begin % kLatentPieceTokens) * row_bytes,
        (page_end - begin) * row_bytes);
    begin = page_end;
  }
}

}  // namespace

std::vector<std::byte> GatherLatents(const LatentCache& cache, uint32_t layer, uint64_t begin,
                                     uint64_t end) {
  std::vector<std::byte> rows;
  rows.reserve((end - begin) * cache.layout().RowBytes());
  ForEachPage(cache, layer, begin, end, [&](const std::byte* from, size_t bytes) {
    rows.insert(rows.end(), from, from + bytes);
  });
  return rows;
}

void ScatterLatents(std::span<const std::byte> rows, uint32_t layer, uint64_t begin,
                    LatentCache& cache) {
  const uint64_t end = begin + rows.size() / cache.layout().RowBytes();
  const std::byte* from = rows.data();
  ForEachPage(cache, layer, begin, end, [&](std::byte* to, size_t bytes) {
    std::memcpy(to, from, bytes);
    from += bytes;
  });
}

}  // namespace deltafill::worker
