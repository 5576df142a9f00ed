// Choosing the next token from logits.
#ifndef DELTAFILL_WORKER_RUNTIME_SAMPLER_H_
#define DELTAFILL_WORKER_RUNTIME_SAMPLER_H_

#include <array>
#include <cstdint>
#include <span>

#include "worker/runtime/commands.h"

namespace deltafill::worker {

// Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011): a pure function of counter and key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1), a function of seed and position alone: what is drawn for a token does not
// depend on what else is in the batch, or on earlier draws.
double UniformAt(uint64_t seed, uint64_t position);

// The token at `position` (counted from the prompt's start). Temperature 0: the largest logit, the
// lowest id among equal ones. Otherwise a draw from softmax(logits / temperature), cut to the
// smallest set of likeliest tokens whose probabilities reach top_p (equal ones by ascending id).
// logits: at least one, all finite.
uint32_t SampleToken(std::span<const float> logits, const SamplingParams& params,
                     uint64_t position);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_SAMPLER_H_
