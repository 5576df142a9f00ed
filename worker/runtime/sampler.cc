#include "worker/runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace deltafill::worker {
namespace {

struct Candidate {
  uint32_t id = 0;
  double weight = 0;  // exp((logit - largest) / temperature)
};

uint32_t Draw(std::span<const Candidate> candidates, double total, double uniform) {
  const double threshold = uniform * total;
  double sum = 0;
  for (const Candidate& candidate : candidates) {
    sum += candidate.weight;
    if (threshold < sum) return candidate.id;
  }
  return candidates.back().id;  // rounding left the threshold a hair above the sum
}

// Cuts to the nucleus and returns its total weight.
double KeepNucleus(std::vector<Candidate>& candidates, double total, double top_p) {
  // Tokens below this weight together weigh less than (1 - top_p) * total, so none of them can be
  // needed to reach top_p: dropping them first keeps the sort short.
  const double floor = (1.0 - top_p) * total / static_cast<double>(candidates.size());
  std::erase_if(candidates,
                [floor](const Candidate& candidate) { return candidate.weight < floor; });
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.weight > b.weight; });
  double sum = 0;
  size_t count = 0;
  while (count < candidates.size() && (count == 0 || sum < top_p * total)) {
    sum += candidates[count++].weight;
  }
  candidates.resize(count);
  return sum;
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
  // max_element returns the first of equal ones: the lowest id.
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (params.temperature <= 0.0) return static_cast<uint32_t>(largest - logits.begin());
  std::vector<Candidate> candidates(logits.size());
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp(
        (static_cast<double>(logits[i]) - static_cast<double>(*largest)) / params.temperature);
    candidates[i] = {static_cast<uint32_t>(i), weight};
    total += weight;
  }
  if (params.top_p < 1.0) total = KeepNucleus(candidates, total, params.top_p);
  return Draw(candidates, total, UniformAt(params.seed, position));
}

}  // namespace deltafill::worker
