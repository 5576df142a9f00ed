#include "kernels/cpu/conv_tail.h"
#include "kernels/cpu/prefill_operators.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/short_conv.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deltafill::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y[channels] from its four input rows, oldest first; weight is [4, channels].
void ConvolveRow(const float* const (&x)[kConvKernelSize], const float* weight, int64_t channels,
                 float* y) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* const w0 = weight;
  const float* const w1 = weight + channels;
  const float* const w2 = weight + 2 * channels;
  const float* const w3 = weight + 3 * channels;
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) {
    auto sum = hn::Mul(hn::LoadU(d, w0 + c), hn::LoadU(d, x[0] + c));
    sum = hn::MulAdd(hn::LoadU(d, w1 + c), hn::LoadU(d, x[1] + c), sum);
    sum = hn::MulAdd(hn::LoadU(d, w2 + c), hn::LoadU(d, x[2] + c), sum);
    sum = hn::MulAdd(hn::LoadU(d, w3 + c), hn::LoadU(d, x[3] + c), sum);
    hn::StoreU(Silu(d, sum), d, y + c);
  }
  if (c < channels) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(channels - c));
    const auto load = [&](const float* from) HWY_ATTR { return hn::MaskedLoad(mask, d, from + c); };
    auto sum = hn::Mul(load(w0), load(x[0]));
    sum = hn::MulAdd(load(w1), load(x[1]), sum);
    sum = hn::MulAdd(load(w2), load(x[2]), sum);
    sum = hn::MulAdd(load(w3), load(x[3]), sum);
    hn::BlendedStore(Silu(d, sum), mask, d, y + c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace deltafill::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltafill::kernels::cpu {

HWY_EXPORT(ConvolveRow);

namespace {

constexpr int64_t kRowsPerPiece = 32;

// A run of one sequence's rows.
struct ConvPiece {
  int64_t sequence = 0;
  int64_t begin = 0;  // of the sequence
  int64_t end = 0;
};

std::vector<ConvPiece> CutPieces(SequenceOffsets offsets) {
  std::vector<ConvPiece> pieces;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const int64_t length = offsets[s + 1] - offsets[s];
    for (int64_t begin = 0; begin < length; begin += kRowsPerPiece) {
      pieces.push_back({static_cast<int64_t>(s), begin, std::min(begin + kRowsPerPiece, length)});
    }
  }
  return pieces;
}

// [channels, taps] to [taps, channels]; zeros for nullptr.
void TransposeTaps(const float* from, int64_t channels, int taps, float* to) {
  for (int64_t c = 0; c < channels; ++c) {
    for (int tap = 0; tap < taps; ++tap) {
      to[tap * channels + c] = from != nullptr ? from[c * taps + tap] : 0.0f;
    }
  }
}

// tail_rows: [3, channels], read where the piece reaches back before its sequence.
void ConvolvePiece(const ShortConvParams& params, const ConvPiece& piece, const float* weight,
                   const float* tail_rows) {
  const int64_t first = params.offsets[static_cast<size_t>(piece.sequence)];
  for (int64_t t = piece.begin; t < piece.end; ++t) {
    const float* x[kConvKernelSize];
    for (int tap = 0; tap < kConvKernelSize; ++tap) {
      const int64_t from = t - kConvTailRows + tap;
      x[tap] = from >= 0 ? RowOf(params.x, first + from)
                         : tail_rows + (kConvTailRows + from) * params.channels;
    }
    HWY_DYNAMIC_DISPATCH(ConvolveRow)(x, weight, params.channels, RowOf(params.y, first + t));
  }
}

}  // namespace

Status ShortConv(const ShortConvParams& params, ThreadTeam& team, LaneScratch& scratch) {
  const int64_t channels = params.channels;
  const size_t row_bytes = static_cast<size_t>(channels) * sizeof(float);
  const size_t weight_bytes = kConvKernelSize * row_bytes;
  if (Status s = scratch.ReserveShared(weight_bytes, "short convolution"); !s.ok()) return s;
  if (Status s = scratch.ReservePerThread(kConvTailRows * row_bytes, "short convolution");
      !s.ok()) {
    return s;
  }
  float* const weight = scratch.shared.as<float>();
  TransposeTaps(params.weight, channels, kConvKernelSize, weight);

  const std::vector<ConvPiece> pieces = CutPieces(params.offsets);
  team.ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t index, int thread) {
    const ConvPiece& piece = pieces[static_cast<size_t>(index)];
    float* const tail_rows = static_cast<float*>(scratch.OfThread(thread));
    if (piece.begin < kConvTailRows) {
      const float* tail = params.tails_in != nullptr ? params.tails_in[piece.sequence] : nullptr;
      TransposeTaps(tail, channels, kConvTailRows, tail_rows);
    }
    ConvolvePiece(params, piece, weight, tail_rows);
  });

  // Only now: tails_out may be tails_in.
  if (params.tails_out == nullptr) return {};
  const int64_t sequences = static_cast<int64_t>(params.offsets.size()) - 1;
  team.ParallelFor(sequences, [&](int64_t s, int) {
    if (params.tails_out[s] == nullptr) return;
    const int64_t first = params.offsets[static_cast<size_t>(s)];
    const int64_t length = params.offsets[static_cast<size_t>(s) + 1] - first;
    const float* tail = params.tails_in != nullptr ? params.tails_in[s] : nullptr;
    const float* rows = length > 0 ? RowOf(params.x, first) : nullptr;
    WriteConvTail(rows, params.x.row_stride, length, tail, channels, params.tails_out[s]);
  });
  return {};
}

}  // namespace deltafill::kernels::cpu
#endif  // HWY_ONCE
