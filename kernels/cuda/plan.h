// Launch plans: pure functions of a problem's shape and the device's traits, without CUDA calls.
// A plan decides where work runs, never what its bits are.
#ifndef DELTAFILL_KERNELS_CUDA_PLAN_H_
#define DELTAFILL_KERNELS_CUDA_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/workspace_limits.h"
#include "kernels/delta_rule.h"
#include "kernels/status.h"

namespace deltafill::kernels::cuda {

struct DeviceTraits {
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  int shared_bytes_per_cta = 0;
};

// Whether the code for 9.0 runs: later cards run the code for 8.0.
inline bool IsHopper(const DeviceTraits& device) { return device.major == 9; }

enum class ForwardPath {
  kPortable,  // preparation and chain as two kernels a wave
  kRing,      // one persistent kernel: CTAs that prepare feed CTAs that chain through slots in L2
};

// Overrides for tests and measurements; the defaults let the plan choose.
struct ForwardTuning {
  bool force_portable = false;
  int slice = 0;           // portable: columns of V a CTA, 16 to 64; 0: the plan's choice
  int streams = 0;         // ring: chains at a time; 0: the plan's choice
  int64_t wave_slots = 0;  // portable: slots a wave; 0: kWaveSlots
  int ring_slots = 0;      // ring: slots a stream, at most kMaxRingSlots; 0: the plan's choice
  // Ring: runs one role alone, as if the other were infinitely fast; outputs mean nothing.
  bool chain_only = false;
  bool prepare_only = false;
};

// An item is one value head of one sequence: item = sequence * value_heads + value head.
struct WavePlan {
  int64_t first_item = 0;
  int64_t items = 0;
  int64_t first_block = 0;
  int64_t blocks = 0;
};

// Items that one chain walks over, one after the other.
struct StreamPlan {
  std::vector<int64_t> items;
  std::vector<int64_t> first_step;  // steps (blocks) before each item; one more entry: all steps
};

struct ForwardPlan {
  ForwardPath path = ForwardPath::kPortable;
  int ctas = 0;       // portable: of the preparation; ring: all
  int64_t slots = 0;  // of the workspace, whatever the number of tokens

  int slice = 0;   // portable: columns of V a CTA
  int stages = 0;  // portable: slots in a CTA's shared memory
  std::vector<WavePlan> waves;

  int ring_slots = 0;           // ring: slots a stream
  bool chains_prepare = false;  // ring: chaining CTAs also prepare
  std::vector<StreamPlan> streams;

  std::string ToString() const;
};

inline constexpr int64_t kMaxSequenceTokens = int64_t{1} << 30;

// Checks every field of the params that needs no device; the message names field and limit.
Status CheckForwardParams(const DeltaRuleForwardParams& params);
Status CheckShape(const DeltaRuleShape& shape);
Status CheckOffsets(SequenceOffsets offsets);

// Expects checked params.
ForwardPlan PlanForward(const DeltaRuleShape& shape, SequenceOffsets offsets,
                        const DeviceTraits& device, const ForwardTuning& tuning = {});

// What a plan's launch needs beside the descriptions of its items (some 100 bytes an item and
// checkpoint); does not grow with tokens.
struct ForwardBytes {
  size_t slots = 0;
  size_t exact_rows = 0;
  size_t carried = 0;
  size_t total() const { return slots + exact_rows + carried; }
};
ForwardBytes WorkspaceOf(const ForwardPlan& plan, const DeltaRuleShape& shape);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_PLAN_H_
