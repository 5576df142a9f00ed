#include "kernels/cuda/recurrent.h"

#include <algorithm>
#include <string>

#include "kernels/cuda/inputs.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/recurrent_token.cuh"

namespace deltafill::kernels::cuda {
namespace {

constexpr int kStepRows = 32;               // of V that a CTA of a step has
constexpr int kFewRows = 4, kManyRows = 8;  // of them that a warp has
constexpr int kSummaryWarps = 8;

template <int warp_rows>
inline constexpr int kStepThreads = kStepRows / warp_rows * 32;

struct RecurrentStepParams {
  BlockInputs in;
  DeviceRows v;
  float* const* states = nullptr;  // or nullptr: inline_states
  __nv_bfloat16* o = nullptr;
  int64_t o_stride = 0;
  int value_dim = 0;
  float* inline_states[kStepInlineBatch];
};

template <int K>
struct SharedToken {
  float q[K], k[K], decay[K];
  float beta;
};

// A warp prepares q, k, the decays or beta for all warps of the CTA; the others wait.
template <int K>
__device__ __forceinline__ void PrepareToken(const RecurrentStepParams& p, const TokenGate<K>& gate,
                                             int64_t row, int head, SharedToken<K>* token) {
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int64_t column = static_cast<int64_t>(head / p.in.heads_ratio) * K;
  float x[kLaneChannels<K>];
  if (warp < 2) {
    const DeviceRows& rows = warp == 0 ? p.in.q : p.in.k;
    const float scale = warp == 0 ? p.in.query_scale : 1.0f;
    LoadHeadRow<K>(rows, row, column, lane, p.in.normalize_qk, scale, x);
    StoreStateRow<K>(warp == 0 ? token->q : token->k, lane, x);
  } else if (warp == 2) {
    LoadDecay<K>(p.in, gate, row, head, lane, x);
    StoreStateRow<K>(token->decay, lane, x);
  } else if (warp == 3 && lane == 0) {
    token->beta = LoadBeta(p.in, row, head);
  }
}

template <int K>
__device__ __forceinline__ Token<K> ReadToken(const SharedToken<K>& shared, int lane) {
  Token<K> token;
  LoadStateRow<K>(shared.q, lane, token.q);
  LoadStateRow<K>(shared.k, lane, token.k);
  LoadStateRow<K>(shared.decay, lane, token.decay);
  token.beta = shared.beta;
  return token;
}

// A CTA for kStepRows rows of V of one head of one sequence. The state is asked for into L2 while
// the kernel before still runs, and loaded before anything else.
template <int K, int warp_rows>
__global__ void __launch_bounds__(kStepThreads<warp_rows>, 1024 / kStepThreads<warp_rows>)
    StepKernel(const __grid_constant__ RecurrentStepParams p) {
  __shared__ SharedToken<K> shared;
  const int lane = threadIdx.x & 31;
  const int first = blockIdx.x * kStepRows + (threadIdx.x >> 5) * warp_rows;
  const int head = blockIdx.y;
  const int64_t row = blockIdx.z;
  float* base = p.states ? p.states[row] : p.inline_states[row];
  float* state = base + (static_cast<int64_t>(head) * p.value_dim + first) * K;
  LetNextKernelStart();
  if (lane * 32 < warp_rows * K) PrefetchToL2(state + lane * 32);
  TokenGate<K> gate;
  if (threadIdx.x >> 5 == 2) gate = TokenGate<K>(p.in, head, lane);
  WaitForEarlierKernels();
  float s[warp_rows][kLaneChannels<K>];
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) LoadStateRow<K>(state + r * K, lane, s[r]);
  const int64_t column = static_cast<int64_t>(head) * p.value_dim + first;
  const float v =
      lane < warp_rows ? __bfloat162float(p.v.rows[row * p.v.stride + column + lane]) : 0.0f;
  PrepareToken<K>(p, gate, row, head, &shared);
  __syncthreads();
  const float o = AdvanceRows<K, warp_rows>(s, ReadToken<K>(shared, lane), p.in.delta, v, lane);
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) StoreStateRow<K>(state + r * K, lane, s[r]);
  if (lane < warp_rows) p.o[row * p.o_stride + column + lane] = __float2bfloat16(o);
}

template <int K, int warp_rows>
cudaError_t LaunchStepRows(const RecurrentStepParams& p, int value_heads, int64_t batch,
                           cudaStream_t stream) {
  const LaunchShape shape = {
      dim3(p.value_dim / kStepRows, value_heads, static_cast<unsigned>(batch)),
      kStepThreads<warp_rows>};
  return LaunchOverlapped(StepKernel<K, warp_rows>, shape, stream, p);
}

// How many rows a warp has shows in no bit.
template <int K>
cudaError_t LaunchStep(const RecurrentStepParams& p, int value_heads, int64_t batch,
                       cudaStream_t stream) {
  constexpr int64_t kManyStates = 512;  // that the card is full of with half as many warps too
  if (batch * value_heads >= kManyStates) {
    return LaunchStepRows<K, kManyRows>(p, value_heads, batch, stream);
  }
  return LaunchStepRows<K, kFewRows>(p, value_heads, batch, stream);
}

struct SummaryKernelParams {
  BlockInputs in;
  DeviceRows v;
  int64_t rows = 0;
  int value_dim = 0;
  float* m = nullptr;
  float* b = nullptr;
};

// 32 rows a CTA: first those of B (from zero, with v), then those of M, each a unit vector's way
// through the rows with v = 0.
template <int K>
__global__ void __launch_bounds__(kSummaryWarps * 32)
    SummaryKernel(const __grid_constant__ SummaryKernelParams p) {
  constexpr int kRows = 32 / kSummaryWarps;
  const int lane = threadIdx.x & 31, head = blockIdx.x;
  int first = blockIdx.y * 32 + (threadIdx.x >> 5) * kRows;
  const bool is_m = first >= p.value_dim;
  if (is_m) first -= p.value_dim;
  float s[kRows][kLaneChannels<K>];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int i = 0; i < kLaneChannels<K>; ++i) {
      s[r][i] = is_m && lane * kLaneChannels<K> + i == first + r ? 1.0f : 0.0f;
    }
  }
  const TokenGate<K> gate(p.in, head, lane);
  const int64_t column = static_cast<int64_t>(head) * p.value_dim + first + lane;
  for (int64_t row = 0; row < p.rows; ++row) {
    const Token<K> token = LoadWritingToken<K>(p.in, gate, row, head, lane);
    const bool has_v = !is_m && lane < kRows;
    const float v = has_v ? __bfloat162float(p.v.rows[row * p.v.stride + column]) : 0.0f;
    AdvanceRows<K, kRows>(s, token, p.in.delta, v, lane);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (!is_m) {
      StoreStateRow<K>(p.b + (static_cast<int64_t>(head) * p.value_dim + first + r) * K, lane,
                       s[r]);
      continue;
    }
#pragma unroll
    for (int i = 0; i < kLaneChannels<K>; ++i) {
      const int64_t out = static_cast<int64_t>(head) * K + lane * kLaneChannels<K> + i;
      p.m[out * K + first + r] = s[r][i];
    }
  }
}

// A CTA for one head and one row of V: out[k] = b[k] + sum_i m[k, i] s_in[i].
__global__ void FoldKernel(const __grid_constant__ SummaryFoldParams p) {
  extern __shared__ float in_row[];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * p.value_dim + blockIdx.y;
  in_row[threadIdx.x] = p.s_in[row * p.key_dim + threadIdx.x];
  __syncthreads();
  const float* m = p.m + (static_cast<int64_t>(blockIdx.x) * p.key_dim + threadIdx.x) * p.key_dim;
  float sum = p.b[row * p.key_dim + threadIdx.x];
  for (int i = 0; i < p.key_dim; ++i) sum = fmaf(m[i], in_row[i], sum);
  p.s_out[row * p.key_dim + threadIdx.x] = sum;
}

Status CheckRow(const char* field, const void* data, DType dtype) {
  if (data == nullptr) return InvalidArgument(std::string(field) + ".data is null");
  if (dtype == DType::kBF16) return {};
  return {StatusCode::kUnsupported,
          std::string(field) + ".dtype: the CUDA backend takes bf16 rows"};
}

Status CheckTokenInputs(const DeltaRuleShape& shape, const DeltaRuleInputs& in) {
  if (Status s = CheckShape(shape); !s.ok()) return s;
  if (Status s = CheckRow("in.k", in.k.data, in.k.dtype); !s.ok()) return s;
  if (Status s = CheckRow("in.v", in.v.data, in.v.dtype); !s.ok()) return s;
  if (shape.gate != GateKind::kNone) {
    if (Status s = CheckRow("in.f", in.f.data, in.f.dtype); !s.ok()) return s;
  }
  if (shape.write == WriteRule::kDelta) {
    if (Status s = CheckRow("in.beta", in.beta.data, in.beta.dtype); !s.ok()) return s;
  }
  if (UsesALog(shape.gate) && in.a_log == nullptr) return InvalidArgument("in.a_log is null");
  return {};
}

}  // namespace

Status DeltaRuleStep(const DeltaRuleStepParams& params, DeviceBuffer* state_pointers,
                     cudaStream_t stream) {
  if (Status s = CheckTokenInputs(params.shape, params.in); !s.ok()) return s;
  if (Status s = CheckRow("in.q", params.in.q.data, params.in.q.dtype); !s.ok()) return s;
  if (Status s = CheckRow("o", params.o.data, params.o.dtype); !s.ok()) return s;
  if (params.batch < 0 || params.batch > 65535) {
    return InvalidArgument("batch is " + std::to_string(params.batch) + ", not in [0, 65535]");
  }
  if (params.batch == 0) return {};
  if (params.states == nullptr) return InvalidArgument("states is null");
  for (int64_t i = 0; i < params.batch; ++i) {
    if (params.states[i] == nullptr) {
      return InvalidArgument("states[" + std::to_string(i) + "] is null");
    }
    if (reinterpret_cast<uintptr_t>(params.states[i]) % 16 != 0) {
      return InvalidArgument("states[" + std::to_string(i) + "] is not aligned to 16 bytes");
    }
  }
  RecurrentStepParams p;
  p.in = MakeBlockInputs(params.shape, params.in);
  p.v = MakeDeviceRows(params.in.v);
  p.o = static_cast<__nv_bfloat16*>(params.o.data);
  p.o_stride = params.o.row_stride;
  p.value_dim = params.shape.value_dim;
  if (params.batch <= kStepInlineBatch) {
    std::copy(params.states, params.states + params.batch, p.inline_states);
  } else {
    const size_t bytes = static_cast<size_t>(params.batch) * sizeof(float*);
    if (Status s = state_pointers->Reserve(bytes, stream); !s.ok()) return s;
    if (Status s = FromCuda(cudaMemcpyAsync(state_pointers->as<void>(), params.states, bytes,
                                            cudaMemcpyHostToDevice, stream),
                            "cudaMemcpyAsync");
        !s.ok()) {
      return s;
    }
    p.states = state_pointers->as<float*>();
  }
  const int key_dim = params.shape.key_dim, value_heads = params.shape.value_heads;
  const cudaError_t launched =
      key_dim == 128  ? LaunchStep<128>(p, value_heads, params.batch, stream)
      : key_dim == 64 ? LaunchStep<64>(p, value_heads, params.batch, stream)
                      : LaunchStep<32>(p, value_heads, params.batch, stream);
  return FromCuda(launched, "recurrent step");
}

Status DeltaRuleSummary(const DeltaRuleSummaryParams& params, cudaStream_t stream) {
  if (params.rows < 0) return InvalidArgument("rows is negative");
  if (Status s = CheckShape(params.shape); !s.ok()) return s;
  if (params.rows > 0) {
    if (Status s = CheckTokenInputs(params.shape, params.in); !s.ok()) return s;
  }
  if (params.m == nullptr) return InvalidArgument("m is null");
  if (params.b == nullptr) return InvalidArgument("b is null");
  SummaryKernelParams p;
  p.in = MakeBlockInputs(params.shape, params.in);
  if (params.rows == 0) p.in.gate = GateKind::kNone;  // nothing of the inputs is read
  p.v = MakeDeviceRows(params.in.v);
  p.rows = params.rows;
  p.value_dim = params.shape.value_dim;
  p.m = params.m;
  p.b = params.b;
  const int key_dim = params.shape.key_dim;
  const dim3 grid(params.shape.value_heads, (params.shape.value_dim + key_dim) / 32);
  if (key_dim == 128) SummaryKernel<128><<<grid, kSummaryWarps * 32, 0, stream>>>(p);
  if (key_dim == 64) SummaryKernel<64><<<grid, kSummaryWarps * 32, 0, stream>>>(p);
  if (key_dim == 32) SummaryKernel<32><<<grid, kSummaryWarps * 32, 0, stream>>>(p);
  return FromCuda(cudaGetLastError(), "summary");
}

Status FoldSummary(const SummaryFoldParams& params, cudaStream_t stream) {
  if (!params.m || !params.b || !params.s_in || !params.s_out) {
    return InvalidArgument("m, b, s_in and s_out must not be null");
  }
  const dim3 grid(params.value_heads, params.value_dim);
  FoldKernel<<<grid, params.key_dim, params.key_dim * sizeof(float), stream>>>(params);
  return FromCuda(cudaGetLastError(), "summary fold");
}

}  // namespace deltafill::kernels::cuda
