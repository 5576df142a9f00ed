#include "worker/runtime/sampler.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

namespace deltafill::worker {
namespace {

// Loops over vocabularies keep this many sums or maxima at a time: one vector register or two.
constexpr size_t kLanes = 8;
// Weights are added up by blocks, then block by block: the same order on every machine.
constexpr size_t kBlock = 512;

float Largest(std::span<const float> logits) {
  std::array<float, kLanes> largest;
  largest.fill(logits[0]);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float x = logits[i + lane];
      largest[lane] = x > largest[lane] ? x : largest[lane];
    }
  }
  for (; i < logits.size(); ++i) largest[0] = std::max(largest[0], logits[i]);
  return *std::max_element(largest.begin(), largest.end());
}

// The lowest id with this logit. The inner loop has no exit, so that it is vectorised.
uint32_t FirstOf(std::span<const float> logits, float value) {
  for (size_t first = 0; first < logits.size(); first += kBlock) {
    const std::span<const float> block =
        logits.subspan(first, std::min(kBlock, logits.size() - first));
    int hits = 0;
    for (const float x : block) hits |= static_cast<int>(x == value);
    if (hits == 0) continue;
    return static_cast<uint32_t>(first) +
           static_cast<uint32_t>(std::find(block.begin(), block.end(), value) - block.begin());
  }
  return 0;
}

// 2^x for x <= 0, relative error under 3e-7; 0 below 2^-126.5. The polynomial is Taylor's of
// 2^f = e^(f ln 2) for f in [-1/2, 1/2].
float Exp2OfNegative(float x) {
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to the nearest integer
  // Bits of negative floats ascend with their size. As integers: a comparison of floats may trap,
  // which keeps loops from being vectorised.
  x = std::bit_cast<float>(std::min(std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(-127.0f)));
  const float shifted = x + kRound;
  const float f = x - (shifted - kRound);
  const int32_t n = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  float y = 1.5252734e-5f;
  y = y * f + 1.5403530e-4f;
  y = y * f + 1.3333558e-3f;
  y = y * f + 9.6181291e-3f;
  y = y * f + 5.5504109e-2f;
  y = y * f + 2.4022651e-1f;
  y = y * f + 6.9314718e-1f;
  y = y * f + 1.0f;
  return y * std::bit_cast<float>((n + 127) << 23);
}

double SumOf(std::span<const float> weights) {
  std::array<double, kLanes> sums = {};
  size_t i = 0;
  for (; i + kLanes <= weights.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += static_cast<double>(weights[i + lane]);
    }
  }
  for (; i < weights.size(); ++i) sums[0] += static_cast<double>(weights[i]);
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

std::span<const float> BlockOf(std::span<const float> weights, size_t block) {
  return weights.subspan(block * kBlock, std::min(kBlock, weights.size() - block * kBlock));
}

// The weights' memory is kept for the thread's next call.
struct Weights {
  std::vector<float> of_tokens;  // 2^((logit - largest) * log2(e) / temperature)
  std::vector<double> of_blocks;
  double total = 0;

  void SumBlocks() {
    of_blocks.resize((of_tokens.size() + kBlock - 1) / kBlock);
    total = 0;
    for (size_t block = 0; block < of_blocks.size(); ++block) {
      of_blocks[block] = SumOf(BlockOf(of_tokens, block));
      total += of_blocks[block];
    }
  }
};

void Weigh(std::span<const float> logits, float largest, double temperature, Weights* out) {
  constexpr double kLog2E = 1.4426950408889634;
  const float scale =
      static_cast<float>(std::min(kLog2E / temperature, double{std::numeric_limits<float>::max()}));
  out->of_tokens.resize(logits.size());
  float* const weights = out->of_tokens.data();
  for (size_t i = 0; i < logits.size(); ++i) {
    weights[i] = Exp2OfNegative((logits[i] - largest) * scale);
  }
  out->SumBlocks();
}

uint32_t Draw(const Weights& weights, double uniform) {
  const double threshold = uniform * weights.total;
  double sum = 0;
  size_t block = 0;
  // The last block takes what rounding leaves.
  while (block + 1 < weights.of_blocks.size() && sum + weights.of_blocks[block] <= threshold) {
    sum += weights.of_blocks[block++];
  }
  const std::span<const float> of_tokens = BlockOf(weights.of_tokens, block);
  size_t last = 0;  // with any weight
  for (size_t i = 0; i < of_tokens.size(); ++i) {
    if (of_tokens[i] == 0.0f) continue;
    last = i;
    sum += static_cast<double>(of_tokens[i]);
    if (threshold < sum) break;
  }
  return static_cast<uint32_t>(block * kBlock + last);
}

struct Candidate {
  uint32_t id = 0;
  float logit = 0;
  double weight = 0;
};

// Weights are 2^x; a bucket has those of a sixteenth of x, the largest first.
constexpr size_t kBuckets = 128 * 16;

size_t BucketOf(float weight) {
  constexpr int kShift = 23 - 4;
  return kBuckets - 1 - std::min<size_t>(std::bit_cast<uint32_t>(weight) >> kShift, kBuckets - 1);
}

// Tokens outside the smallest set of likeliest ones that weigh top_p of all lose their weight.
void CutToNucleus(std::span<const float> logits, double top_p, Weights* weights) {
  std::array<double, kBuckets> of_buckets = {};
  for (const float weight : weights->of_tokens) {
    of_buckets[BucketOf(weight)] += static_cast<double>(weight);
  }
  const double enough = top_p * weights->total;
  double kept = 0;
  size_t cut = 0;  // the bucket in which the set ends
  while (cut + 1 < kBuckets && kept + of_buckets[cut] < enough) kept += of_buckets[cut++];
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < logits.size(); ++i) {
    float& weight = weights->of_tokens[i];
    const size_t bucket = BucketOf(weight);
    if (bucket == cut) {
      candidates.push_back({static_cast<uint32_t>(i), logits[i], static_cast<double>(weight)});
    }
    if (bucket >= cut) weight = 0;
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  for (const Candidate& candidate : candidates) {
    if (kept > 0 && kept >= enough) break;
    weights->of_tokens[candidate.id] = static_cast<float>(candidate.weight);
    kept += candidate.weight;
  }
  weights->SumBlocks();
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * counter[0];
    const uint64_t second = uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
        static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

double UniformAt(uint64_t seed, uint64_t position) {
  const std::array<uint32_t, 4> bits =
      Philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t mantissa = (uint64_t{bits[0]} << 21) ^ (uint64_t{bits[1]} >> 11);
  return static_cast<double>(mantissa) * 0x1p-53;
}

uint32_t SampleToken(std::span<const float> logits, const SamplingParams& params,
                     uint64_t position) {
  const float largest = Largest(logits);
  if (params.temperature <= 0.0) return FirstOf(logits, largest);
  thread_local Weights weights;
  Weigh(logits, largest, params.temperature, &weights);
  const double uniform = UniformAt(params.seed, position);
  if (params.top_p < 1.0) CutToNucleus(logits, params.top_p, &weights);
  return Draw(weights, uniform);
}

}  // namespace deltafill::worker
