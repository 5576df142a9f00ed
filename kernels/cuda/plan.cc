#include "kernels/cuda/plan.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <sstream>

#include "kernels/cuda/slot_layout.h"

namespace deltafill::kernels::cuda {
namespace {

int64_t BlocksOf(SequenceOffsets offsets, int64_t sequence) {
  return (offsets[sequence + 1] - offsets[sequence] + kBlockRows - 1) / kBlockRows;
}

int64_t LongestBlocks(SequenceOffsets offsets, int64_t first, int64_t end) {
  int64_t blocks = 0;
  for (int64_t s = first; s < end; ++s) blocks = std::max(blocks, BlocksOf(offsets, s));
  return blocks;
}

// Windows of items small enough that at least one block of each fits, each cut along its blocks.
// A window without blocks still has one wave, which copies states.
void PlanWaves(const DeltaRuleShape& shape, SequenceOffsets offsets, int64_t slots,
               ForwardPlan* plan) {
  const int64_t items = static_cast<int64_t>(offsets.size() - 1) * shape.value_heads;
  for (int64_t first = 0; first < items;) {
    const int64_t count = std::min(items - first, slots);
    const int64_t last_sequence = (first + count - 1) / shape.value_heads;
    const int64_t longest =
        std::max<int64_t>(1, LongestBlocks(offsets, first / shape.value_heads, last_sequence + 1));
    const int64_t blocks = std::max<int64_t>(1, slots / count);
    for (int64_t block = 0; block < longest; block += blocks) {
      plan->waves.push_back({first, count, block, std::min(blocks, longest - block)});
      plan->slots = std::max(plan->slots, count * plan->waves.back().blocks);
    }
    first += count;
  }
}

// Longest item first, each to the stream with the fewest steps; ties to the lower index.
void PlanStreams(const DeltaRuleShape& shape, SequenceOffsets offsets, int64_t streams,
                 ForwardPlan* plan) {
  const int64_t sequences = static_cast<int64_t>(offsets.size()) - 1;
  std::vector<int64_t> order(sequences);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return BlocksOf(offsets, a) > BlocksOf(offsets, b);
  });
  plan->streams.assign(streams, {});
  for (StreamPlan& stream : plan->streams) stream.first_step.push_back(0);
  // A heap would do; streams are few.
  for (int64_t sequence : order) {
    for (int head = 0; head < shape.value_heads; ++head) {
      auto least = std::min_element(
          plan->streams.begin(), plan->streams.end(), [](const StreamPlan& a, const StreamPlan& b) {
            const int64_t steps_a = a.first_step.back(), steps_b = b.first_step.back();
            return steps_a != steps_b ? steps_a < steps_b : a.items.size() < b.items.size();
          });
      least->items.push_back(sequence * shape.value_heads + head);
      least->first_step.push_back(least->first_step.back() + BlocksOf(offsets, sequence));
    }
  }
}

// More groups serve each of few streams, so more of its steps are under way. The slots of all
// streams together have to stay in L2.
int RingSlots(int64_t streams) { return streams <= 20 ? kMaxRingSlots : 14; }

// A step of a chain takes 1.1 us on a multiprocessor of its own, half as much again beside a group
// that prepares; a multiprocessor without a chain prepares two blocks in 9 us. While the others
// prepare enough, chains keep their multiprocessors to themselves: up to 24 streams of 132
// multiprocessors, as measured (1.29 us a step).
bool ChainsPrepare(int64_t streams, int multiprocessors) {
  return streams * 11 > int64_t{multiprocessors} * 2;
}

// Up to half of the CTAs chain, two a stream.
void PlanRing(const DeltaRuleShape& shape, SequenceOffsets offsets, const DeviceTraits& device,
              const ForwardTuning& tuning, ForwardPlan* plan) {
  const int64_t items = static_cast<int64_t>(offsets.size() - 1) * shape.value_heads;
  const int64_t chains = std::max(1, device.multiprocessors / 4);
  const int64_t rounds = (items + chains - 1) / chains;
  int64_t streams = tuning.streams ? tuning.streams : (items + rounds - 1) / rounds;
  streams = std::min({streams, items, int64_t{device.multiprocessors / 2}});
  plan->ring_slots =
      tuning.ring_slots ? std::min(tuning.ring_slots, kMaxRingSlots) : RingSlots(streams);
  plan->slots = streams * plan->ring_slots;
  plan->ctas = device.multiprocessors;
  plan->chains_prepare = ChainsPrepare(streams, device.multiprocessors);
  PlanStreams(shape, offsets, streams, plan);
}

}  // namespace

ForwardPlan PlanForward(const DeltaRuleShape& shape, SequenceOffsets offsets,
                        const DeviceTraits& device, const ForwardTuning& tuning) {
  ForwardPlan plan;
  const bool ring = IsHopper(device) && shape.key_dim == 128 && shape.value_dim == 128 &&
                    device.multiprocessors >= 8 && !tuning.force_portable;
  if (ring) {
    PlanRing(shape, offsets, device, tuning, &plan);
    int64_t most_steps = 0;
    for (const StreamPlan& s : plan.streams) most_steps = std::max(most_steps, s.first_step.back());
    // Steps are counted in 32 bits; groups may draw a few past the last.
    if (most_steps < (int64_t{1} << 32) - 65536) {
      plan.path = ForwardPath::kRing;
      return plan;
    }
    plan = {};
  }
  plan.ctas = device.multiprocessors * 2;
  plan.slice = tuning.slice ? tuning.slice : std::min(shape.value_dim, 64);
  const int64_t stage_bytes = SlotBytes(shape.key_dim) + kBlockRows * (64 + 8) * 2;
  plan.stages = 2 * stage_bytes <= device.shared_bytes_per_cta ? 2 : 1;
  PlanWaves(shape, offsets, tuning.wave_slots ? tuning.wave_slots : kWaveSlots, &plan);
  return plan;
}

ForwardBytes WorkspaceOf(const ForwardPlan& plan, const DeltaRuleShape& shape) {
  const int groups_per_cta = plan.path == ForwardPath::kRing ? 2 : 1;
  const size_t exact = size_t{3} * kBlockRows * static_cast<size_t>(shape.key_dim) * sizeof(float);
  ForwardBytes bytes;
  bytes.slots = static_cast<size_t>(plan.slots * SlotBytes(shape.key_dim));
  bytes.exact_rows = exact * static_cast<size_t>(plan.ctas * groups_per_cta);
  int64_t most_items = 0;
  for (const WavePlan& wave : plan.waves) most_items = std::max(most_items, wave.items);
  bytes.carried = size_t{4} * static_cast<size_t>(most_items * shape.value_dim * shape.key_dim);
  return bytes;
}

std::string ForwardPlan::ToString() const {
  std::ostringstream out;
  out << (path == ForwardPath::kRing ? "ring" : "portable") << " ctas=" << ctas
      << " slots=" << slots;
  if (path == ForwardPath::kPortable) {
    out << " slice=" << slice << " stages=" << stages << " waves=" << waves.size();
    for (const WavePlan& wave : waves) {
      out << "\n  items [" << wave.first_item << ", " << wave.first_item + wave.items
          << ") blocks [" << wave.first_block << ", " << wave.first_block + wave.blocks << ")";
    }
    return out.str();
  }
  out << " ring_slots=" << ring_slots << (chains_prepare ? " chains prepare" : "")
      << " streams=" << streams.size();
  for (const StreamPlan& stream : streams) {
    out << "\n  items=" << stream.items.size() << " steps=" << stream.first_step.back();
  }
  return out.str();
}

}  // namespace deltafill::kernels::cuda
