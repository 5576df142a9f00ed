#include "kernels/cuda/product_plan.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace deltafill::kernels::cuda {
namespace {

// Raised whenever the bits of any CUDA operator change.
constexpr int kBitsVersion = 8;

std::string Joined(std::vector<std::string> parts, const char* separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) out += (i ? separator : "") + parts[i];
  return out;
}

}  // namespace

std::string ProductAlgorithm::ToString() const {
  return "id" + std::to_string(id) + ".tile" + std::to_string(tile) + ".split" +
         std::to_string(split_k) + ".reduction" + std::to_string(reduction) + ".swizzle" +
         std::to_string(swizzling) + ".custom" + std::to_string(custom_option) + ".stages" +
         std::to_string(stages) + ".inner" + std::to_string(inner_shape) + ".cluster" +
         std::to_string(cluster_shape);
}

bool IsAllowed(const ProductAlgorithm& algorithm) {
  return algorithm.split_k >= 0 && algorithm.split_k <= 1 && algorithm.reduction == 0;
}

size_t RowClassOf(int64_t rows) {
  const size_t last = kRowClassCount - 1;
  for (size_t i = 0; i < last; ++i) {
    if (rows <= kRowClasses[i].rows_max) return i;
  }
  return last;
}

int64_t NextCallRows(int64_t rows_left) { return std::min(rows_left, kRowClasses.back().rows_max); }

ProbePlan PlanProbe(int64_t out_features) {
  const int64_t rows_max = kRowClasses.back().rows_max;
  // Not a multiple of any tile.
  const int64_t wanted = std::max(kProbeRowsMin, kProbeElements / out_features) | 1;
  ProbePlan plan;
  plan.rows = std::min({wanted, rows_max, int64_t{4229}});
  int64_t before = 0;
  for (size_t i = 0; i < kRowClassCount; ++i) {
    const int64_t rows_most = std::min(kRowClasses[i].rows_max, plan.rows);
    std::vector<ProbeCall> calls;
    if (rows_most > before) {
      const int64_t span = rows_most - before;
      int64_t first_row = 0;
      for (int64_t rows :
           {before + 1, before + span / 3 + 1, before + span / 2, rows_most - 1, rows_most}) {
        if (rows <= before) continue;
        calls.push_back({std::min(first_row, plan.rows - rows), rows});
        first_row += 37;  // another place in every tile
      }
    }
    before = kRowClasses[i].rows_max;
    plan.calls.push_back(std::move(calls));
  }
  return plan;
}

std::string ProductChoice::ToString() const {
  std::vector<std::string> parts;
  for (const ProductAlgorithm& algorithm : algorithms) parts.push_back(algorithm.ToString());
  return std::string("[") + std::to_string(out_features) + ", " + std::to_string(in_features) +
         "] to " + (y_dtype == DType::kBF16 ? "bf16" : "f32") + ": " + Joined(parts, " | ");
}

std::string DigestOf(const std::vector<ProductChoice>& choices) {
  std::vector<std::string> lines;
  for (const ProductChoice& choice : choices) lines.push_back(choice.ToString() + "\n");
  std::sort(lines.begin(), lines.end());
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const std::string& line : lines) {
    for (const char c : line) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  }
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

std::string CudaNumericsName(int major, int minor, int multiprocessors, size_t library_version,
                             const std::vector<ProductChoice>& choices) {
  return "cuda/bf16/sm_" + std::to_string(major * 10 + minor) + "x" +
         std::to_string(multiprocessors) + "/cublaslt-" + std::to_string(library_version) +
         "/products-" + DigestOf(choices) + "/block" + std::to_string(kBlockTokens) + "/v" +
         std::to_string(kBitsVersion);
}

}  // namespace deltafill::kernels::cuda
