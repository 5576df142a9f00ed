#include "kernels/cuda/forward.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cuda/inputs.h"
#include "kernels/cuda/portable_kernels.h"
#include "kernels/cuda/ring_kernel.h"
#include "kernels/cuda/slot_layout.h"

namespace deltafill::kernels::cuda {
namespace {

// Host image of the descriptions a call uploads in one copy.
class Descriptions {
 public:
  // Returns the offset of the copied values; every offset is a multiple of 16.
  template <typename T>
  size_t Add(const std::vector<T>& values) {
    const size_t offset = bytes_.size();
    const size_t size = values.size() * sizeof(T);
    bytes_.resize((offset + size + 15) / 16 * 16);
    if (size > 0) std::memcpy(bytes_.data() + offset, values.data(), size);
    return offset;
  }
  Status Upload(DeviceBuffer* buffer, cudaStream_t stream) const {
    if (Status s = buffer->Reserve(bytes_.size(), stream); !s.ok()) return s;
    return FromCuda(cudaMemcpyAsync(buffer->as<void>(), bytes_.data(), bytes_.size(),
                                    cudaMemcpyHostToDevice, stream),
                    "cudaMemcpyAsync");
  }

 private:
  std::vector<uint8_t> bytes_;
};

std::vector<SequenceSpan> MakeSpans(const DeltaRuleForwardParams& params) {
  const size_t sequences = params.offsets.size() - 1;
  std::vector<SequenceSpan> spans(sequences);
  size_t checkpoint = 0;
  for (size_t i = 0; i < sequences; ++i) {
    SequenceSpan& span = spans[i];
    span.first_row = params.offsets[i];
    span.rows = params.offsets[i + 1] - params.offsets[i];
    if (params.initial_states) span.initial_state = params.initial_states[i];
    if (params.final_states) span.final_state = params.final_states[i];
    span.checkpoint_begin = static_cast<int32_t>(checkpoint);
    while (checkpoint < params.checkpoints.size() &&
           params.checkpoints[checkpoint].sequence == static_cast<int>(i)) {
      ++checkpoint;
    }
    span.checkpoint_end = static_cast<int32_t>(checkpoint);
  }
  return spans;
}

std::vector<CheckpointTarget> MakeTargets(const DeltaRuleForwardParams& params) {
  std::vector<CheckpointTarget> targets;
  for (const StateCheckpoint& c : params.checkpoints) {
    targets.push_back({c.tokens / kBlockTokens, c.state});
  }
  return targets;
}

ChainInputs MakeChainInputs(const DeltaRuleForwardParams& params) {
  ChainInputs chain;
  chain.v = MakeDeviceRows(params.in.v);
  chain.o = static_cast<__nv_bfloat16*>(params.o.data);
  chain.o_stride = params.o.row_stride;
  chain.o_vectorized = IsVectorized(params.o.data, params.o.row_stride);
  chain.value_heads = params.shape.value_heads;
  chain.value_dim = params.shape.value_dim;
  return chain;
}

Status Reserve(const ForwardPlan& plan, const DeltaRuleShape& shape, ForwardWorkspace* workspace,
               cudaStream_t stream) {
  const ForwardBytes bytes = WorkspaceOf(plan, shape);
  if (Status s = workspace->slots.Reserve(bytes.slots, stream); !s.ok()) return s;
  if (Status s = workspace->exact_rows.Reserve(bytes.exact_rows, stream); !s.ok()) return s;
  return workspace->carried.Reserve(bytes.carried, stream);
}

template <int K>
Status LaunchWave(const PortablePrepareParams& prepare, const PortableChainParams& chain,
                  int prepare_ctas, cudaStream_t stream) {
  if (Status s =
          FromCuda(LaunchPortablePrepare<K>(prepare, prepare_ctas, stream), "portable preparation");
      !s.ok()) {
    return s;
  }
  return FromCuda(LaunchPortableChain<K>(chain, stream), "portable chain");
}

Status RunPortable(const DeltaRuleForwardParams& params, const ForwardPlan& plan,
                   ForwardWorkspace* workspace, cudaStream_t stream) {
  const DeltaRuleShape& shape = params.shape;
  Descriptions descriptions;
  const size_t spans = descriptions.Add(MakeSpans(params));
  const size_t targets = descriptions.Add(MakeTargets(params));
  if (Status s = descriptions.Upload(&workspace->descriptions, stream); !s.ok()) return s;
  if (Status s = Reserve(plan, shape, workspace, stream); !s.ok()) return s;

  uint8_t* base = workspace->descriptions.as<uint8_t>();
  PortablePrepareParams prepare;
  prepare.in = MakeBlockInputs(shape, params.in);
  prepare.sequences = reinterpret_cast<const SequenceSpan*>(base + spans);
  prepare.value_heads = shape.value_heads;
  prepare.slots = workspace->slots.as<uint8_t>();
  prepare.exact_rows = workspace->exact_rows.as<float>();
  PortableChainParams chain;
  chain.in = MakeChainInputs(params);
  chain.in.sequences = prepare.sequences;
  chain.in.checkpoints = reinterpret_cast<const CheckpointTarget*>(base + targets);
  chain.slots = prepare.slots;
  chain.carried = workspace->carried.as<float>();
  chain.slice = plan.slice;
  chain.stages = plan.stages;
  for (const WavePlan& wave : plan.waves) {
    prepare.wave = chain.wave = {wave.first_item, wave.items, wave.first_block, wave.blocks};
    const Status s = shape.key_dim == 128  ? LaunchWave<128>(prepare, chain, plan.ctas, stream)
                     : shape.key_dim == 64 ? LaunchWave<64>(prepare, chain, plan.ctas, stream)
                                           : LaunchWave<32>(prepare, chain, plan.ctas, stream);
    if (!s.ok()) return s;
  }
  return {};
}

// A role that runs alone finds the other's work done.
std::vector<RingFlags> StartFlags(size_t streams, const ForwardTuning& tuning) {
  RingFlags start = {};
  if (tuning.chain_only) std::ranges::fill(start.ready, ~0u);
  if (tuning.prepare_only) std::ranges::fill(start.consumed, ~0u);
  return std::vector<RingFlags>(streams, start);
}

// Of the tensors of which the ring kernel brings in whole blocks; none if one is not aligned.
Status MapRows(const DeltaRuleForwardParams& params, const BlockInputs& in, RingRows* rows) {
  const DeltaRuleShape& shape = params.shape;
  const bool channel_gate = shape.gate == GateKind::kChannelSoftplus ||
                            shape.gate == GateKind::kChannelLowerBound ||
                            shape.gate == GateKind::kChannelPreactivated;
  const int64_t count = params.offsets.back();
  rows->mapped = count > 0 && count <= INT32_MAX && in.q.vectorized && in.k.vectorized &&
                 (in.f.vectorized || !channel_gate);
  if (!rows->mapped) return {};
  auto map = [&](const DeviceRows& from, int heads, TensorMap* to) {
    return MakeRowsMap({from.rows, count, int64_t{heads} * shape.key_dim, from.stride, kBlockRows},
                       to);
  };
  if (Status s = map(in.q, shape.heads, &rows->q); !s.ok()) return s;
  if (Status s = map(in.k, shape.heads, &rows->k); !s.ok()) return s;
  return channel_gate ? map(in.f, shape.value_heads, &rows->f) : Status();
}

// V and O where they are aligned, and the scalars of all slots.
Status MapTiles(const DeltaRuleForwardParams& params, const ChainInputs& chain,
                const uint8_t* slots, int64_t slot_count, bool chains_prepare, RingTiles* tiles) {
  using Slot = SlotLayout<128>;
  const int64_t count = params.offsets.back();
  const int64_t width = int64_t{params.shape.value_heads} * params.shape.value_dim;
  // Beside a preparing group, whose rows the copy engine brings too, lanes are as fast or faster.
  const bool mapped = !chains_prepare && count > 0 && count <= INT32_MAX;
  tiles->v_mapped = mapped && chain.v.vectorized;
  tiles->o_mapped = mapped && chain.o_vectorized;
  if (tiles->v_mapped) {
    const Status s =
        MakeRowsMap({chain.v.rows, count, width, chain.v.stride, kBlockRows}, &tiles->v);
    if (!s.ok()) return s;
  }
  if (tiles->o_mapped) {
    const Status s = MakeRowsMap({chain.o, count, width, chain.o_stride, kBlockRows}, &tiles->o);
    if (!s.ok()) return s;
  }
  constexpr int kHalf = kSlotScalars / 2;  // a box has up to 256 words
  const int64_t dims[] = {kHalf, 2, slot_count};
  const int64_t strides[] = {kHalf, Slot::kBytes / 2};
  const uint32_t boxes[] = {2, 1};
  return MakeTensorMap({slots + Slot::kDecay, dims, strides, boxes, kHalf}, &tiles->scalars);
}

Status RunRing(const DeltaRuleForwardParams& params, const ForwardPlan& plan,
               const ForwardTuning& tuning, ForwardWorkspace* workspace, cudaStream_t stream) {
  std::vector<RingStream> streams;
  std::vector<RingItem> items;
  int64_t most_steps = 0;
  for (const StreamPlan& plan_stream : plan.streams) {
    RingStream s;
    s.steps = plan_stream.first_step.back();
    s.first_item = static_cast<int64_t>(items.size());
    s.items = static_cast<int64_t>(plan_stream.items.size());
    for (size_t i = 0; i < plan_stream.items.size(); ++i) {
      const int64_t item = plan_stream.items[i], sequence = item / params.shape.value_heads;
      const int64_t first_row = params.offsets[sequence];
      items.push_back({item, plan_stream.first_step[i], first_row,
                       static_cast<int32_t>(params.offsets[sequence + 1] - first_row),
                       static_cast<int32_t>(item % params.shape.value_heads)});
    }
    streams.push_back(s);
    most_steps = std::max(most_steps, s.steps);
  }
  Descriptions descriptions;
  // First, as the memory's start has the alignment that they need.
  const size_t flags_at = descriptions.Add(StartFlags(streams.size(), tuning));
  const size_t spans = descriptions.Add(MakeSpans(params));
  const size_t targets = descriptions.Add(MakeTargets(params));
  const size_t streams_at = descriptions.Add(streams);
  const size_t items_at = descriptions.Add(items);
  if (Status s = descriptions.Upload(&workspace->descriptions, stream); !s.ok()) return s;
  if (Status s = Reserve(plan, params.shape, workspace, stream); !s.ok()) return s;
  uint8_t* base = workspace->descriptions.as<uint8_t>();
  RingParams ring;
  ring.in = MakeBlockInputs(params.shape, params.in);
  if (Status s = MapRows(params, ring.in, &ring.rows); !s.ok()) return s;
  ring.chain = MakeChainInputs(params);
  ring.chain.sequences = reinterpret_cast<const SequenceSpan*>(base + spans);
  ring.chain.checkpoints = reinterpret_cast<const CheckpointTarget*>(base + targets);
  ring.streams = reinterpret_cast<const RingStream*>(base + streams_at);
  ring.items = reinterpret_cast<const RingItem*>(base + items_at);
  ring.stream_count = static_cast<int>(streams.size());
  ring.item_count = static_cast<int>(items.size());
  ring.ring_slots = plan.ring_slots;
  ring.chains_prepare = plan.chains_prepare;
  ring.most_steps = most_steps;
  ring.even_streams = std::all_of(streams.begin(), streams.end(),
                                  [&](const RingStream& s) { return s.steps == most_steps; });
  ring.slots = workspace->slots.as<uint8_t>();
  ring.flags = reinterpret_cast<RingFlags*>(base + flags_at);
  if (Status s =
          MapTiles(params, ring.chain, ring.slots, plan.slots, plan.chains_prepare, &ring.tiles);
      !s.ok()) {
    return s;
  }
  ring.exact_rows = workspace->exact_rows.as<float>();
  ring.runs_chains = !tuning.prepare_only;
  ring.runs_preparation = !tuning.chain_only;
  return FromCuda(LaunchRing(ring, plan.ctas, stream), "ring kernel");
}

}  // namespace

Status DeltaRuleForward(const DeltaRuleForwardParams& params, const ForwardTuning& tuning,
                        ForwardWorkspace* workspace, cudaStream_t stream) {
  if (Status s = CheckForwardParams(params); !s.ok()) return s;
  if (params.offsets.size() < 2) return {};
  DeviceTraits device;
  if (Status s = ReadDeviceTraits(&device); !s.ok()) return s;
  if (device.major < 8) {
    return {StatusCode::kUnsupported, "the CUDA backend needs compute capability 8.0 or later"};
  }
  const ForwardPlan plan = PlanForward(params.shape, params.offsets, device, tuning);
  return plan.path == ForwardPath::kRing ? RunRing(params, plan, tuning, workspace, stream)
                                         : RunPortable(params, plan, workspace, stream);
}

}  // namespace deltafill::kernels::cuda
