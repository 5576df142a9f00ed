// Everything that a prompt leaves behind at the workers that ran it.
#ifndef DELTAFILL_TESTS_TESTING_PROMPT_OUTCOME_H_
#define DELTAFILL_TESTS_TESTING_PROMPT_OUTCOME_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tests/testing/eventually.h"
#include "tests/testing/lane_fixture.h"

namespace deltafill::test {

struct PromptOutcome {
  std::map<uint64_t, std::vector<PartId>> boundaries;  // part ids are hashes of the bytes
  std::map<uint64_t, PartId> pieces;                   // of latents, by their ends
  std::vector<float> logits;
};

// Waits for as many boundaries and pieces, and the logits; the last boundary may be stored by
// another worker than the one that makes the logits. Fails the test if an attempt has failed.
inline PromptOutcome Collect(const std::vector<std::unique_ptr<LaneBench>>& workers,
                             size_t boundary_count, size_t piece_count = 0) {
  PromptOutcome outcome;
  const bool complete = Eventually([&] {
    outcome = PromptOutcome();
    size_t pieces = 0;
    for (const auto& worker : workers) {
      for (const BoundaryStored& stored : worker->sink.Of<BoundaryStored>()) {
        outcome.boundaries[stored.boundary] = IdsOf(stored.parts);
      }
      for (const LatentPieceStored& stored : worker->sink.Of<LatentPieceStored>()) {
        outcome.pieces[stored.end] = stored.part.id;
        ++pieces;
      }
      for (const LastLogits& last : worker->sink.Of<LastLogits>()) outcome.logits = last.values;
      for (const AttemptFailed& failed : worker->sink.Of<AttemptFailed>()) {
        ADD_FAILURE() << failed.status;
      }
    }
    EXPECT_EQ(pieces, outcome.pieces.size()) << "a piece was put twice";
    return testing::Test::HasFailure() || (outcome.boundaries.size() >= boundary_count &&
                                           pieces >= piece_count && !outcome.logits.empty());
  });
  EXPECT_TRUE(complete) << outcome.boundaries.size() << " boundaries, " << outcome.pieces.size()
                        << " pieces, " << outcome.logits.size() << " logits";
  return outcome;
}

// The state at a boundary as a manifest would name it.
inline WavefrontStart StartAt(const PromptOutcome& outcome, uint64_t boundary) {
  WavefrontStart start;
  start.boundary = boundary;
  start.parts = outcome.boundaries.at(boundary);
  for (const auto& [end, piece] : outcome.pieces) {
    if (end <= boundary) start.latents.push_back(piece);
  }
  const bool has_latents = start.parts.size() > 2;  // recurrent, convolution tail
  if (boundary % kLatentPieceTokens != 0 && has_latents) {
    start.latents.push_back(start.parts.back());
    start.parts.pop_back();
  }
  return start;
}

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_PROMPT_OUTCOME_H_
