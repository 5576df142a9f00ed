// A deterministic toy model behind the Model interface: exact in integers, fast, with delays and
// faults where a test wants them. Its states and latents are whole numbers below 2^24 kept as fp32.
// Layers are recurrences, or attention whose outputs depend on the latents of all tokens before and
// on their order.
#ifndef DELTAFILL_TESTS_TESTING_FAKE_MODEL_H_
#define DELTAFILL_TESTS_TESTING_FAKE_MODEL_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "tests/testing/fake_device.h"
#include "worker/model/model.h"

namespace deltafill::test {

using namespace worker;  // what is tested

inline constexpr uint32_t kFakeLatentWidth = 3;

struct FakeModelOptions {
  uint32_t layers = 3;
  std::vector<uint32_t> attention_layers;  // ascending; at least one layer must not be one
  uint32_t vocabulary = 97;
  std::chrono::microseconds layer_delay{0};  // slept in each task of Prefill
  std::optional<uint32_t> poison_token;      // makes head 1 of layer 1, or its latent, not finite
  std::function<void(uint32_t layer)> on_task;  // before each task, on the lane's thread
  bool on_device = TestsUseDevice();            // states and rows in a fake device's memory
};

// Lanes check that they are used by one call at a time and never over their size.
class FakeModel : public Model {
 public:
  explicit FakeModel(FakeModelOptions options = {});
  ~FakeModel() override;

  const ModelConfig& config() const override { return config_; }
  const ModelFingerprint& fingerprint() const override { return fingerprint_; }
  const StateLayout& state_layout() const override { return layout_; }
  kernels::Backend& backend() const override { return *backend_; }
  absl::StatusOr<std::shared_ptr<Lane>> NewLane(int threads, int64_t rows_max) override;
  absl::Status Prefill(Lane& lane, std::span<const RangeWork> ranges) override;
  absl::Status LastLogits(Lane& lane, std::span<float> logits) override;
  // Writes other bits into state and latents than prefilling the same token does.
  absl::Status DecodeStep(Lane& lane, std::span<const DecodeRow> rows,
                          std::span<float> logits) override;

  // Everything at once, from the zero state: what any way of running it must give.
  struct Reference {
    std::vector<std::byte> state;             // layout().bytes, gaps zero
    std::vector<float> logits;                // of the last token
    std::vector<std::vector<float>> latents;  // an attention layer: [tokens, kFakeLatentWidth]
  };
  Reference Run(std::span<const uint32_t> tokens) const;

  int decode_batch_largest() const { return decode_batch_largest_.load(); }
  int tasks_run() const { return tasks_run_.load(); }

 private:
  struct FakeLane;
  struct LayerState;
  bool IsAttention(uint32_t layer) const;
  void RunTokens(const LayerState& state, std::span<uint64_t> rows, uint32_t layer,
                 uint64_t flavour) const;
  static void WriteLatents(std::span<const uint64_t> rows, uint32_t layer, uint64_t flavour,
                           const kernels::LatentSequence& sequence);
  static void Attend(std::span<uint64_t> rows, const kernels::LatentSequence& sequence);
  void StepRow(const DecodeRow& row, std::span<float> logits) const;
  void Logits(uint64_t row, std::span<float> logits) const;
  FakeLane& Of(Lane& lane);
  // Rows that work on a lane shares with what issues it.
  using Rows = std::shared_ptr<std::vector<uint64_t>>;
  absl::Status RunTask(kernels::Operators& lane, const RangeWork& range, const Rows& rows,
                       uint32_t layer) const;
  absl::Status RunAttention(kernels::Operators& lane, const RangeWork& range, const Rows& rows,
                            uint32_t layer) const;
  // Of a recurrence; nullptr where there is no such state.
  struct TaskStates;
  void RunRecurrence(const TaskStates& states, std::span<const uint32_t> tokens,
                     std::span<uint64_t> rows, uint32_t layer) const;

  const FakeModelOptions options_;
  ModelConfig config_;
  ModelFingerprint fingerprint_;
  StateLayout layout_;
  std::unique_ptr<kernels::Backend> host_backend_;
  std::unique_ptr<kernels::Backend> backend_;
  std::mutex mutex_;
  std::map<const Lane*, std::unique_ptr<FakeLane>> lanes_;  // guarded by mutex_
  std::atomic<int> decode_batch_largest_{0};
  std::atomic<int> tasks_run_{0};
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_FAKE_MODEL_H_
