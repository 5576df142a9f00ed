#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cuda/check_operators.h"
#include "kernels/cuda/inputs.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/row_operators.h"
#include "kernels/cuda/short_conv.cuh"
#include "kernels/cuda/short_conv_step.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kRunRows = 64;  // rows a thread walks over, of 8 channels
constexpr int kAhead = 4;     // rows asked for before they are needed

struct ConvSequence {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_run = 0;  // runs of the sequences before
  const float* tail_in = nullptr;
  float* tail_out = nullptr;
};

struct ConvKernelParams {
  DeviceRows x;
  const float* weight = nullptr;
  const ConvSequence* sequences = nullptr;  // or nullptr: inline_sequences
  int sequence_count = 0;
  __nv_bfloat16* y = nullptr;
  int64_t y_stride = 0;
  int64_t channels = 0;
  ConvSequence inline_sequences[kShortConvInlineSequences];

  __device__ __forceinline__ const ConvSequence& At(int i) const {
    return sequences ? sequences[i] : inline_sequences[i];
  }
};
static_assert(sizeof(ConvKernelParams) <= 4096);

struct Channels8 {
  float x[8];
};

__device__ __forceinline__ Channels8 Unpack(const uint4& raw) {
  return {LowBf16(raw.x), HighBf16(raw.x), LowBf16(raw.y), HighBf16(raw.y),
          LowBf16(raw.z), HighBf16(raw.z), LowBf16(raw.w), HighBf16(raw.w)};
}

__device__ __forceinline__ Channels8 Load8(const __nv_bfloat16* at) {
  return Unpack(*reinterpret_cast<const uint4*>(at));
}

// The pre-convolution row `row` of a sequence, which may lie in its tail (row >= -3).
__device__ __forceinline__ Channels8 RowAt(const ConvKernelParams& p, const ConvSequence& sequence,
                                           int64_t row, int64_t channel) {
  if (row >= 0) return Load8(p.x.rows + (sequence.first_row + row) * p.x.stride + channel);
  Channels8 out = {};
  if (sequence.tail_in) {
    for (int i = 0; i < 8; ++i) {
      out.x[i] = sequence.tail_in[(channel + i) * kConvTailRows + kConvTailRows + row];
    }
  }
  return out;
}

__device__ __forceinline__ const ConvSequence& SequenceOfRun(const ConvKernelParams& p,
                                                             int64_t run) {
  int low = 0, high = p.sequence_count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (p.At(middle).first_run <= run) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return p.At(low);
}

__global__ void __launch_bounds__(256) ConvKernel(const __grid_constant__ ConvKernelParams p) {
  const int64_t channel = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * 8;
  if (channel >= p.channels) return;
  const ConvSequence sequence = SequenceOfRun(p, blockIdx.x);
  const int64_t first = (blockIdx.x - sequence.first_run) * kRunRows;
  float4 weight[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) weight[c] = reinterpret_cast<const float4*>(p.weight)[channel + c];
  Channels8 before[3] = {RowAt(p, sequence, first - 3, channel),
                         RowAt(p, sequence, first - 2, channel),
                         RowAt(p, sequence, first - 1, channel)};
  const int64_t end = min(first + kRunRows, sequence.rows);
  const __nv_bfloat16* x = p.x.rows + (sequence.first_row + first) * p.x.stride + channel;
  __nv_bfloat16* y = p.y + (sequence.first_row + first) * p.y_stride + channel;
  uint4 ahead[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (first + i < end) ahead[i] = *reinterpret_cast<const uint4*>(x + i * p.x.stride);
  }
  for (int64_t row = first; row < end; row += kAhead) {
    x += kAhead * p.x.stride;
#pragma unroll
    for (int i = 0; i < kAhead; ++i, y += p.y_stride) {
      if (row + i >= end) break;
      const Channels8 now = Unpack(ahead[i]);
      if (row + i + kAhead < end) ahead[i] = *reinterpret_cast<const uint4*>(x + i * p.x.stride);
      float out[8];
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        out[c] = ConvolvedSilu(weight[c], before[0].x[c], before[1].x[c], before[2].x[c], now.x[c]);
      }
      *reinterpret_cast<uint4*>(y) = Pack8(out);
      before[0] = before[1];
      before[1] = before[2];
      before[2] = now;
    }
  }
}

// After the rows, so that a tail may be read and written in the same place.
__global__ void TailKernel(const __grid_constant__ ConvKernelParams p) {
  const ConvSequence sequence = p.At(blockIdx.x);
  const int64_t channel = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * 8;
  if (channel >= p.channels || sequence.tail_out == nullptr) return;
  Channels8 rows[kConvTailRows];
  for (int i = 0; i < kConvTailRows; ++i) {
    rows[i] = RowAt(p, sequence, sequence.rows - kConvTailRows + i, channel);
  }
  for (int c = 0; c < 8; ++c) {
    for (int i = 0; i < kConvTailRows; ++i) {
      sequence.tail_out[(channel + c) * kConvTailRows + i] = rows[i].x[c];
    }
  }
}

// Decoding: sequences of one row each. A thread convolves 8 channels and moves their tail on; the
// bits are ConvKernel's.
__global__ void __launch_bounds__(64) ConvStepKernel(const __grid_constant__ ConvKernelParams p) {
  const int64_t channel = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * 8;
  const ConvSequence& sequence = p.At(blockIdx.x);
  LetNextKernelStart();
  if (channel >= p.channels) return;
  float4 weight[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) weight[c] = reinterpret_cast<const float4*>(p.weight)[channel + c];
  const float* const tail_in = sequence.tail_in;
  if (tail_in != nullptr) PrefetchToL2(tail_in + channel * kConvTailRows);
  WaitForEarlierKernels();
  Channels8 now = Load8(p.x.rows + sequence.first_row * p.x.stride + channel);
  float tail[kTailFloats];
  LoadTail(tail_in == nullptr ? nullptr : tail_in + channel * kConvTailRows, tail);
  float(&out)[8] = now.x;
  ConvolveStep(weight, tail, out);
  *reinterpret_cast<uint4*>(p.y + sequence.first_row * p.y_stride + channel) = Pack8(out);
  if (sequence.tail_out != nullptr) StoreTail(tail, sequence.tail_out + channel * kConvTailRows);
}

__global__ void ConvTailKernel(DeviceRows x, int64_t tokens, const float* tail_in, float* tail_out,
                               int64_t channels) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel >= channels) return;
  float rows[kConvTailRows];
  for (int i = 0; i < kConvTailRows; ++i) {
    const int64_t row = tokens - kConvTailRows + i;
    rows[i] = row >= 0  ? __bfloat162float(x.rows[row * x.stride + channel])
              : tail_in ? tail_in[channel * kConvTailRows + kConvTailRows + row]
                        : 0.0f;
  }
  for (int i = 0; i < kConvTailRows; ++i) tail_out[channel * kConvTailRows + i] = rows[i];
}

// At most `rows_max` rows of each sequence.
Status Convolve(const ShortConvParams& params, int64_t rows_max, float* const* tails_out,
                DeviceBuffer* descriptions, cudaStream_t stream) {
  if (Status s = CheckShortConv(params); !s.ok()) return s;
  const int sequences = static_cast<int>(params.offsets.size()) - 1;
  if (sequences == 0) return {};
  std::vector<ConvSequence> host(sequences);
  int64_t runs = 0;
  bool single_rows = true;
  for (int i = 0; i < sequences; ++i) {
    host[i].first_row = params.offsets[i];
    host[i].rows = std::min(rows_max, params.offsets[i + 1] - params.offsets[i]);
    host[i].first_run = runs;
    single_rows &= host[i].rows == 1;
    if (params.tails_in) host[i].tail_in = params.tails_in[i];
    if (tails_out) host[i].tail_out = tails_out[i];
    runs += (host[i].rows + kRunRows - 1) / kRunRows;
  }
  ConvKernelParams p;
  p.x = MakeDeviceRows(params.x);
  p.weight = params.weight;
  if (sequences <= kShortConvInlineSequences) {
    std::copy(host.begin(), host.end(), p.inline_sequences);
  } else {
    const size_t bytes = host.size() * sizeof(ConvSequence);
    if (Status s = descriptions->Reserve(bytes, stream); !s.ok()) return s;
    if (Status s = FromCuda(cudaMemcpyAsync(descriptions->as<void>(), host.data(), bytes,
                                            cudaMemcpyHostToDevice, stream),
                            "cudaMemcpyAsync");
        !s.ok()) {
      return s;
    }
    p.sequences = descriptions->as<ConvSequence>();
  }
  p.sequence_count = sequences;
  p.y = static_cast<__nv_bfloat16*>(params.y.data);
  p.y_stride = params.y.row_stride;
  p.channels = params.channels;
  const int threads =
      static_cast<int>(std::min<int64_t>(256, (params.channels / 8 + 31) / 32 * 32));
  const unsigned columns = static_cast<unsigned>((params.channels / 8 + threads - 1) / threads);
  if (single_rows) {
    constexpr int kStepThreads = 64;  // many CTAs even for one sequence
    const unsigned ctas =
        static_cast<unsigned>((params.channels / 8 + kStepThreads - 1) / kStepThreads);
    const LaunchShape shape = {dim3(static_cast<unsigned>(sequences), ctas), kStepThreads};
    return FromCuda(LaunchOverlapped(ConvStepKernel, shape, stream, p), "short convolution");
  }
  if (runs > 0) ConvKernel<<<dim3(static_cast<unsigned>(runs), columns), threads, 0, stream>>>(p);
  if (tails_out) TailKernel<<<dim3(sequences, columns), threads, 0, stream>>>(p);
  return FromCuda(cudaGetLastError(), "short convolution");
}

}  // namespace

Status ShortConv(const ShortConvParams& params, DeviceBuffer* descriptions, cudaStream_t stream) {
  return Convolve(params, std::numeric_limits<int64_t>::max(), params.tails_out, descriptions,
                  stream);
}

Status ShortConvHeads(const ShortConvParams& params, DeviceBuffer* descriptions,
                      cudaStream_t stream) {
  return Convolve(params, kConvTailRows, nullptr, descriptions, stream);
}

Status ConvTail(const ConvTailParams& params, cudaStream_t stream) {
  if (params.channels < 1) return InvalidArgument("channels must be positive");
  if (params.tokens < 0) return InvalidArgument("tokens is negative");
  if (params.tail_out == nullptr) return InvalidArgument("tail_out is null");
  if (params.tokens > 0 && params.x.dtype != DType::kBF16) {
    return {StatusCode::kUnsupported, "x.dtype: the CUDA backend takes bf16 rows"};
  }
  const unsigned ctas = static_cast<unsigned>((params.channels + 255) / 256);
  ConvTailKernel<<<ctas, 256, 0, stream>>>(MakeDeviceRows(params.x), params.tokens, params.tail_in,
                                           params.tail_out, params.channels);
  return FromCuda(cudaGetLastError(), "convolution tail");
}

}  // namespace deltafill::kernels::cuda
