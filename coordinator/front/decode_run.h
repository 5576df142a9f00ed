// One decoding: from the deepest stored state of a prompt to the last token, and the saved state.
#ifndef DELTAFILL_COORDINATOR_FRONT_DECODE_RUN_H_
#define DELTAFILL_COORDINATOR_FRONT_DECODE_RUN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/front/keyed_prompt.h"
#include "coordinator/front/part_leases.h"
#include "coordinator/front/prompt_session.h"
#include "coordinator/front/publish.h"
#include "coordinator/prompt_engine.h"
#include "statestore/store.h"

namespace deltafill::coordinator {

struct DecodeAsk {
  uint32_t max_tokens = 1;
  double temperature = 0.0;
  double top_p = 1.0;
  uint64_t seed = 0;
  std::vector<uint32_t> stop_ids;
  bool save_state = false;
};

// On the caller's thread. A failure means that the caller is gone; the decoding is then cancelled.
class DecodeListener {
 public:
  virtual ~DecodeListener() = default;
  virtual absl::Status OnStarted(uint64_t cached_tokens,
                                 const std::string& miss_reason) = 0;  // once
  virtual absl::Status OnToken(uint32_t id) = 0;
};

struct DecodeOutcome {
  std::string finish_reason;
  std::string saved_handle;  // with save_state
  uint64_t saved_bytes = 0;
  uint64_t cached_tokens = 0;
  uint64_t tokens_computed = 0;  // of the prompt
  uint64_t tokens_generated = 0;
  double lookup_s = 0.0;
  double queue_s = 0.0;
  double prefill_s = 0.0;
  double save_s = 0.0;
};

class DecodeRun {
 public:
  // All references must outlive the run.
  DecodeRun(StateStore& store, PromptEngine& engine, const KeyedPrompt& prompt,
            const DecodeAsk& ask, DecodeListener& listener, const std::function<bool()>& cancelled);

  // Once. A prompt with more than kDecodeDirectTokensMax tokens to compute is prefilled first, as
  // Prefill would, and its state kept.
  absl::StatusOr<DecodeOutcome> Run();

 private:
  absl::Status ChooseStart(bool verify);
  absl::Status PrefillFirst();
  absl::Status Submit();
  absl::Status Handle(PromptEvent& event);
  void Start();
  absl::Status Save();

  StateStore& store_;
  PromptEngine& engine_;
  const KeyedPrompt& prompt_;
  const DecodeAsk& ask_;
  DecodeListener& listener_;
  const std::function<bool()>& cancelled_;

  StartState start_;
  std::string miss_reason_;
  bool prefilled_ = false;
  bool started_ = false;
  absl::Status listening_;  // the listener's first failure
  std::vector<uint32_t> generated_;
  std::optional<StoredBoundary> saved_;
  std::optional<LeasedParts> shared_;  // with the start state
  DecodeOutcome outcome_;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_FRONT_DECODE_RUN_H_
