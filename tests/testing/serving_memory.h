// Serving in every way within the memory that was planned for it.
#ifndef DELTAFILL_TESTS_TESTING_SERVING_MEMORY_H_
#define DELTAFILL_TESTS_TESTING_SERVING_MEMORY_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/testing/prompt_outcome.h"
#include "worker/runtime/memory_plan.h"

namespace deltafill::test {

inline size_t HeldBytes(kernels::Backend& backend) {
  kernels::MemoryReport report;
  const kernels::Status status = backend.ReadMemory(&report);
  EXPECT_TRUE(status.ok()) << status.message();
  return report.held_bytes;
}

// Takes what is planned for `worker_count` workers of the model, makes them, and has them prefill,
// resume, decode and save prompts. From the reservation on nothing is taken of the device, and from
// the workers' start on no page-locked memory, whose allocations `host_allocations` counts (it may
// be empty).
inline void ServeWithinThePlan(Model& model, kernels::DType weight_dtype, StateStore& store,
                               size_t worker_count,
                               const std::function<int64_t()>& host_allocations = nullptr) {
  kernels::Backend& backend = model.backend();
  const WorkerMemory memory{.range_tokens_max = 1024,
                            .decode_rows_max = 512,
                            .decode_batch_max = 4,
                            .capture_bytes_max = size_t{16} << 20,
                            .latent_bytes_max = size_t{64} << 20};
  const auto plan = PlanMemory(model.config(), {weight_dtype, backend.activation_dtype(), false},
                               memory, static_cast<int>(worker_count));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const kernels::Status reserved = backend.ReserveMemory(plan->reserved_bytes);
  ASSERT_TRUE(reserved.ok()) << reserved.message();
  const size_t held = HeldBytes(backend);
  EXPECT_GE(held, plan->reserved_bytes);

  std::vector<std::unique_ptr<LaneBench>> workers;
  auto registry = std::make_shared<MailboxRegistry>();
  for (size_t i = 0; i < worker_count; ++i) {
    workers.push_back(std::make_unique<LaneBench>(
        &model, &store, registry, static_cast<uint32_t>(i), memory.latent_bytes_max));
    workers.back()->MakePrefill({1, memory.range_tokens_max, memory.capture_bytes_max});
    workers.back()->MakeDecode({1, memory.decode_rows_max, memory.decode_batch_max});
  }
  EXPECT_EQ(HeldBytes(backend), held) << "starting took more than the plan: " << plan->ToString();

  const int64_t host_allocations_before = host_allocations ? host_allocations() : 0;
  const bool has_latents = !model.state_layout().latents.layers.empty();
  const std::vector<uint32_t> tokens = RandomTokens(1, 4500, 256);
  RunWavefront(workers, {1, 1}, tokens, 1024, 1024);
  const PromptOutcome outcome = Collect(workers, 5, has_latents ? 1 : 0);
  ASSERT_TRUE(outcome.boundaries.contains(4480));
  const std::vector<uint64_t> boundaries = {3072, 4096};
  for (const uint64_t boundary : boundaries) {
    const WavefrontStart start = StartAt(outcome, boundary);
    RunWavefront(workers, {1 + boundary, 1}, tokens, 320, 1024, start);
    DecodeCommand decode = SavingDecode(tokens, 70);
    decode.attempt = {2 + boundary, 1};
    decode.first_token = boundary;
    decode.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(boundary), tokens.end());
    decode.source = {StateSource::From::kStored, start.parts};
    decode.stored_latents = start.latents;
    workers[0]->decode->Run(decode);
  }
  ASSERT_TRUE(Eventually(
      [&] { return workers[0]->sink.Of<DecodeFinished>().size() == boundaries.size(); }));
  ASSERT_TRUE(Eventually([&] {
    size_t logits = 0;
    for (const auto& worker : workers) logits += worker->sink.Of<LastLogits>().size();
    return logits == 1 + boundaries.size();
  }));
  EXPECT_EQ(HeldBytes(backend), held) << "serving took more than the plan: " << plan->ToString();
  EXPECT_EQ(host_allocations ? host_allocations() : 0, host_allocations_before);
}

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_SERVING_MEMORY_H_
