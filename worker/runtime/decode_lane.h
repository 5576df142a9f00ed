// Runs all decodings and exact-end exports of a worker on a thread of its own, with continuous
// batching: every turn takes at most one chunk of prefill and one step of everything that decodes.
// What a sequence starts from is loaded beside them (DecodeStart).
#ifndef DELTAFILL_WORKER_RUNTIME_DECODE_LANE_H_
#define DELTAFILL_WORKER_RUNTIME_DECODE_LANE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/thread_team.h"
#include "worker/model/model.h"
#include "worker/runtime/closable_queue.h"
#include "worker/runtime/commands.h"
#include "worker/runtime/decode_sequence.h"
#include "worker/runtime/decode_start.h"
#include "worker/runtime/prefill_lane.h"
#include "worker/runtime/state_pool.h"

namespace deltafill::worker {

struct DecodeLaneOptions {
  int threads = 1;
  int64_t rows_max = 512;  // prefill chunk; a multiple of 64
  int batch_max = 16;      // sequences at once; more wait. At most rows_max
};

// Events. Decoding: DecodeReady, DecodeToken for each token (the stop token too), DecodeFinished.
// Export: ExportReady. Or AttemptFailed, once an attempt; nothing for aborted attempts.
//
// Tokens are a function of the command alone. What save_state keeps comes from prefilling the
// generated tokens, never from decoding steps.
class DecodeLane {
 public:
  // As PrefillLane::Create. parts.exchange is not used.
  static absl::StatusOr<std::unique_ptr<DecodeLane>> Create(const LaneParts& parts,
                                                            const DecodeLaneOptions& options);
  // Ends within one turn.
  ~DecodeLane();

  // Thread-safe, never block.
  void Run(DecodeCommand command);
  void Run(ExportCommand command);

  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

 private:
  DecodeLane(const LaneParts& parts, const DecodeLaneOptions& options);
  absl::Status Prepare();
  absl::Status RunOnce();
  void Enqueue(DecodeSequence sequence);
  void Main();
  void AdmitWaiting();
  void RemoveEnded();
  void AdvanceOne();
  absl::Status Advance(DecodeSequence& sequence);
  absl::Status FinishPrompt(DecodeSequence& sequence);
  absl::Status AdvanceSaving(DecodeSequence& sequence);
  absl::Status PrefillChunk(DecodeSequence& sequence, size_t count);
  void StepBatch();
  // Reads the sequence only: several may be chosen for at once.
  absl::StatusOr<uint32_t> ChooseToken(const DecodeSequence& sequence,
                                       std::span<const float> logits) const;
  void ChooseTokens(std::span<DecodeSequence* const> batch,
                    std::span<absl::StatusOr<uint32_t>> ids);
  void TakeToken(DecodeSequence& sequence, uint32_t id);
  void Finish(DecodeSequence& sequence, const char* reason);
  SaveRequest Saving(DecodeSequence& sequence, uint64_t end) const;
  void SaveExport(DecodeSequence& sequence, std::span<const float> logits);
  void SaveDecoded(DecodeSequence& sequence);
  void Fail(DecodeSequence& sequence, const absl::Status& status);

  const LaneParts parts_;
  const DecodeLaneOptions options_;
  const StateLayout& layout_;
  const size_t vocabulary_;
  std::unique_ptr<StatePool> states_;
  BufferPool host_buffers_;  // page-locked, if there is a device
  // Used by the lane's thread only.
  std::shared_ptr<Lane> lane_;
  PortLane port_lane_;
  StateBufferRef scratch_;  // prefill writes here, then it changes places with a sequence's state
  std::vector<std::unique_ptr<DecodeSequence>> active_;
  PooledBuffer logits_memory_;
  std::span<float> logits_;  // [batch_max, vocabulary]
  kernels::cpu::ThreadTeam team_;

  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> pending_{0};
  ClosableQueue<std::unique_ptr<DecodeSequence>> queue_;  // ready to run
  std::unique_ptr<DecodeStart> start_;                    // fills queue_
  std::thread thread_;                                    // last
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_RUNTIME_DECODE_LANE_H_
