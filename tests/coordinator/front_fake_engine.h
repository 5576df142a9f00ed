// A PromptEngine without workers: states are a chain of hashes, written into real parts of a real
// store, so that a resume from wrong or missing bits gives wrong answers.
#ifndef DELTAFILL_TESTS_COORDINATOR_FRONT_FAKE_ENGINE_H_
#define DELTAFILL_TESTS_COORDINATOR_FRONT_FAKE_ENGINE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/prompt_engine.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

inline constexpr uint32_t kHeads = 2, kValueDim = 3, kKeyDim = 4;
inline constexpr uint32_t kConvChannels = kHeads * (2 * kKeyDim + kValueDim);
inline constexpr uint32_t kVocabulary = 300;

// The state after tokens is a number; its tensors and logits follow from it.
uint64_t HashTokens(uint64_t state, std::span<const uint32_t> tokens);
float RecurrentValue(uint64_t state, uint32_t layer, uint32_t index);
uint16_t ConvValue(uint64_t state, uint32_t layer, uint32_t index);  // bf16 bits
std::string LogitsOf(uint64_t state);                                // [kVocabulary] float32
uint32_t NextToken(uint64_t state);                                  // greedy

// "tiny", layers 0 and 2.
ServedModel FakeModel(const std::string& name = "tiny", uint8_t fingerprint = 1,
                      const std::string& numerics = "cpu.fake.1");

class FakeEngine final : public PromptEngine {
 public:
  explicit FakeEngine(StateStore& store) : store_(store) {}
  ~FakeEngine() override;

  absl::StatusOr<PromptNumber> SubmitPrefill(PrefillWork work,
                                             std::shared_ptr<PromptObserver> observer) override;
  absl::StatusOr<PromptNumber> SubmitDecode(DecodeWork work,
                                            std::shared_ptr<PromptObserver> observer) override;
  absl::StatusOr<PromptNumber> SubmitExport(ExportWork work,
                                            std::shared_ptr<PromptObserver> observer) override;
  void Cancel(PromptNumber prompt) override;
  std::vector<ServedModel> Models() const override;
  std::vector<AttachedWorker> Workers() const override;
  uint32_t PromptsRunning() const override { return running_; }
  uint32_t PromptsQueued() const override { return 3; }

  // What tests set before they call: the first three under the lock, as a call that has ended is
  // seen to have ended by the test, but not by the thread sanitizer (gRPC is not instrumented).
  void SetModels(std::vector<ServedModel> models) {
    const std::lock_guard lock(mutex_);
    models_ = std::move(models);
  }
  // A failure is the submission's.
  void OnSubmit(std::function<absl::Status()> hook) {
    const std::lock_guard lock(mutex_);
    on_submit_ = std::move(hook);
  }
  // Before each block end; a failure ends the prompt.
  void OnBlock(std::function<absl::Status(uint64_t)> hook) {
    const std::lock_guard lock(mutex_);
    on_block_ = std::move(hook);
  }
  std::atomic<bool> hold = false;        // prompts wait before their last block
  std::atomic<uint64_t> scramble = 0;    // mixed into what is stored: wrong bits
  std::atomic<bool> omit_saved = false;  // decoding forgets its state

  // What they look at afterwards.
  std::vector<PrefillWork> prefills() const;
  std::vector<DecodeWork> decodes() const;
  std::atomic<int> cancels = 0;

 private:
  using Work = std::function<absl::Status(PromptNumber, PromptObserver&, WorkTimings*)>;
  absl::StatusOr<PromptNumber> Start(std::shared_ptr<PromptObserver> observer, Work work);
  bool IsCancelled(PromptNumber prompt) const;
  absl::StatusOr<uint64_t> ReadStart(const StartState& start) const;
  absl::StatusOr<std::vector<PartReceipt>> PutParts(const std::string& tenant, uint64_t state,
                                                    uint64_t boundary, bool logits) const;
  absl::Status RunPrefill(const PrefillWork& work, PromptNumber number, PromptObserver& observer,
                          WorkTimings* timings);
  absl::Status RunDecode(const DecodeWork& work, PromptNumber number, PromptObserver& observer);

  StateStore& store_;
  mutable std::mutex mutex_;
  std::vector<std::thread> threads_;                // under mutex_
  std::set<PromptNumber> cancelled_;                // under mutex_
  std::vector<PrefillWork> prefills_;               // under mutex_
  std::vector<DecodeWork> decodes_;                 // under mutex_
  std::vector<ServedModel> models_{FakeModel()};    // under mutex_
  std::function<absl::Status()> on_submit_;         // under mutex_
  std::function<absl::Status(uint64_t)> on_block_;  // under mutex_
  PromptNumber last_ = 0;                           // under mutex_
  std::atomic<uint32_t> running_ = 0;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_TESTS_COORDINATOR_FRONT_FAKE_ENGINE_H_
