// The operator interface: everything a worker asks of a CPU or a GPU. One implementation a backend.
//
// Row-invariance (DESIGN section 3) is part of every prefill operator's contract: the bits of an
// output row depend on its own input row, the weights and the state before its block; never on how
// many rows the call has, where the row sits, or how many threads run.
//
// An Operators object is one execution lane: a pool of threads on the CPU, a stream on a GPU. Calls
// are issued in order; on a GPU they return before the work is done, and Synchronize waits. An
// object may be used by one thread at a time; different objects of a backend are independent.
#ifndef DELTAFILL_KERNELS_OPERATORS_H_
#define DELTAFILL_KERNELS_OPERATORS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "kernels/delta_rule.h"
#include "kernels/latent_attention.h"
#include "kernels/mixture_of_experts.h"
#include "kernels/status.h"
#include "kernels/tensor.h"

namespace deltafill::kernels {

// A weight matrix in the backend's own memory and layout, made once at load. Immutable, shareable
// between lanes of one backend.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual int64_t out_features() const = 0;
  virtual int64_t in_features() const = 0;
};

// y[rows, out] = x[rows, in] W^T (+ bias), W as stored in checkpoints: [out, in].
struct MatMulParams {
  ConstRows x;  // [rows, in]
  const Weight* weight = nullptr;
  const float* bias = nullptr;  // [out] or nullptr
  MutableRows y;                // [rows, out]; does not overlap x
  int64_t rows = 0;
  bool accumulate = false;  // y += instead of y =: the residual connection
  // A decoding step's few rows, where reading the weights is what counts: bits of its own, which do
  // not depend on the other rows either. A backend may treat it like any product.
  bool step = false;
};

// Causal depthwise convolution of kernel size 4 followed by SiLU; no bias.
// y[t, c] = silu(sum_j w[c, j] x[t - 3 + j, c]), rows before a sequence's start come from its tail.
struct ShortConvParams {
  ConstRows x;                    // [rows, channels]: pre-convolution rows
  const float* weight = nullptr;  // [channels, 4], oldest tap first
  SequenceOffsets offsets;
  const float* const* tails_in =
      nullptr;  // host [sequences] of [channels, 3], oldest first; nullptr: zeros
  float* const* tails_out =
      nullptr;    // host [sequences] of [channels, 3], may equal tails_in; entries may be nullptr
  MutableRows y;  // [rows, channels]; does not overlap x
  int64_t channels = 0;
};

// The tail [channels, 3] as it stands after `tokens` rows of a sequence (a checkpoint's).
struct ConvTailParams {
  ConstRows x;                     // rows of one sequence
  int64_t tokens = 0;              // >= 0
  const float* tail_in = nullptr;  // [channels, 3] before the first row; nullptr: zeros
  float* tail_out = nullptr;       // [channels, 3]
  int64_t channels = 0;
};

// y = x / sqrt(mean(x^2) + eps) * weight, over groups of `width` channels.
struct RmsNormParams {
  ConstRows x;                    // [rows, groups*width]
  const float* weight = nullptr;  // [width], shared by the groups
  ConstRows gate;                 // [rows, groups*width]; data nullptr: not gated
  MutableRows y;                  // may alias x
  int64_t rows = 0;
  int64_t groups = 1;
  int64_t width = 0;
  float eps = 1e-5f;
  // Gated form: y = rms_norm(x) * weight * sigmoid(gate) (KDA's output norm).
};

// y = silu(gate) * up.
struct SwiGluParams {
  ConstRows gate;  // [rows, width]
  ConstRows up;    // [rows, width]
  MutableRows y;   // [rows, width], may alias gate or up
  int64_t rows = 0;
  int64_t width = 0;
};

// A product whose columns are the gates and ups of SwiGLU: y = silu(g) * u, where [g, u] is what
// `gate_up` would write.
struct MatMulSwiGluParams {
  // weight [2 * width, in]: gates, then ups. y: room that a backend may keep [rows, 2 * width] in;
  // what it holds afterwards says nothing. Neither biased nor accumulating.
  MatMulParams gate_up;
  MutableRows y;  // [rows, width]; overlaps neither gate_up.x nor gate_up.y
};

// Gated RMSNorm whose gates a product makes.
struct MatMulGatedNormParams {
  MatMulParams gate;   // y: room for [rows, groups*width], as above
  RmsNormParams norm;  // its gate is not read; rows as the product's
};

// A product whose first columns are a short convolution's input.
struct MatMulShortConvParams {
  MatMulParams product;
  ShortConvParams conv;  // x: the product's y; tails_out: nullptr, but in steps
  // The ends of three rows each in which y's first conv.channels columns are read by others, beside
  // the first three rows of each sequence. A backend may leave them unwritten in all other rows.
  std::span<const int64_t> kept_ends;
};

// y[i] = table[tokens[i]]. Token ids are checked by the caller.
struct EmbeddingParams {
  const Weight* table = nullptr;     // [vocabulary, width]
  std::span<const uint32_t> tokens;  // host
  MutableRows y;                     // [tokens, width]
};

// Calls of a lane, recorded once and issued again as one. Bound to the lane and to the memory that
// the calls name; both outlive it.
class Recording {
 public:
  virtual ~Recording() = default;
};

// A point of a lane's work: reached when all that was issued before it is done.
class LanePoint {
 public:
  virtual ~LanePoint() = default;
  // Blocks the calling thread, which may be any, until the point is reached; the work's error if it
  // is known by then.
  virtual Status Wait() = 0;
};

class Operators {
 public:
  virtual ~Operators() = default;

  // Prefill operators: row-invariant.
  virtual Status Embedding(const EmbeddingParams& params) = 0;
  virtual Status MatMul(const MatMulParams& params) = 0;
  // Products none of which reads or writes what another writes: the bits of single calls. A backend
  // may run them as one.
  virtual Status MatMuls(std::span<const MatMulParams> products) {
    for (const MatMulParams& product : products) {
      if (Status s = MatMul(product); !s.ok()) return s;
    }
    return {};
  }
  virtual Status RmsNorm(const RmsNormParams& params) = 0;
  virtual Status ShortConv(const ShortConvParams& params) = 0;
  virtual Status ConvTail(const ConvTailParams& params) = 0;
  virtual Status SwiGlu(const SwiGluParams& params) = 0;
  // A product and what uses it at once. A backend may keep the product in fp32 and never write it:
  // the bits are its own, the same for every number of rows, not always those of the single calls.
  virtual Status MatMulSwiGlu(const MatMulSwiGluParams& params);
  // In two calls with the same params: the product with as much of the convolution as needs no
  // tails, then the rest. Only the second reads conv.tails_in. The bits are those of MatMul and
  // ShortConv.
  virtual Status StartMatMulShortConv(const MatMulShortConvParams& params) {
    return MatMul(params.product);
  }
  virtual Status FinishMatMulShortConv(const MatMulShortConvParams& params) {
    return ShortConv(params.conv);
  }
  // Both calls as one, for steps: there a backend may leave y's first conv.channels columns
  // unwritten in all rows. The same bits.
  virtual Status MatMulShortConv(const MatMulShortConvParams& params) {
    if (Status s = StartMatMulShortConv(params); !s.ok()) return s;
    return FinishMatMulShortConv(params);
  }
  virtual Status MatMulGatedNorm(const MatMulGatedNormParams& params);
  virtual Status DeltaRuleForward(const DeltaRuleForwardParams& params) = 0;
  virtual Status DeltaRuleSummary(const DeltaRuleSummaryParams& params) = 0;
  virtual Status LatentAppend(const LatentAppendParams& params) = 0;
  virtual Status LatentPrefill(const LatentPrefillParams& params) = 0;
  virtual Status MixtureOfExperts(const MixtureParams& params) = 0;

  // Decoding: bits of their own, which do not depend on who else is in the batch.
  virtual Status DeltaRuleStep(const DeltaRuleStepParams& params) = 0;
  virtual Status LatentStep(const LatentStepParams& params) = 0;

  // Waits for all issued work and returns its first error.
  virtual Status Synchronize() = 0;

  // Marks the point that the issued calls have got to. `point` is made if it is empty; a point of
  // this lane that nobody waits for is set anew. May be destroyed before it is reached.
  virtual Status Mark(std::unique_ptr<LanePoint>* point) = 0;

  // Within the backend's memory, ordered with the lane; does not overlap. On GPUs either end may
  // also be memory of another device that this process has a backend for.
  virtual Status Copy(void* to, const void* from, size_t bytes) = 0;

  // Copies between host and this backend's memory, ordered with the lane; host memory must stay
  // valid until Synchronize.
  virtual Status CopyFromHost(void* to, const void* host_from, size_t bytes) = 0;
  virtual Status CopyToHost(void* host_to, const void* from, size_t bytes) = 0;
  virtual Status FillZero(void* to, size_t bytes) = 0;

  // Decoding issues the same calls at each step. Calls between BeginRecording and EndRecording are
  // kept, not run; the same calls must have run on this lane before. Replay issues them all, with
  // `tokens` in place of those that the recording's one Embedding was given, as many. The bits are
  // those of the calls themselves. kUnsupported where issuing costs little, and for calls that
  // cannot be recorded (prefill's rule, latent attention, copies between host and device, more than
  // 64 sequences).
  virtual Status BeginRecording() {
    return {StatusCode::kUnsupported, "recordings: this backend has none"};
  }
  virtual Status EndRecording(std::unique_ptr<Recording>* out) {
    out->reset();
    return {StatusCode::kUnsupported, "recordings: this backend has none"};
  }
  virtual Status Replay(Recording&, std::span<const uint32_t> /*tokens*/) {
    return {StatusCode::kUnsupported, "recordings: this backend has none"};
  }
};

inline Status Operators::MatMulSwiGlu(const MatMulSwiGluParams& params) {
  const MutableRows& gate = params.gate_up.y;
  if (Status s = MatMul(params.gate_up); !s.ok()) return s;
  if (params.gate_up.rows == 0) return {};
  const int64_t width = params.gate_up.weight->out_features() / 2;
  ConstRows up = gate;
  up.data =
      static_cast<const std::byte*>(gate.data) + static_cast<size_t>(width) * SizeOf(gate.dtype);
  return SwiGlu(
      {.gate = gate, .up = up, .y = params.y, .rows = params.gate_up.rows, .width = width});
}

inline Status Operators::MatMulGatedNorm(const MatMulGatedNormParams& params) {
  if (Status s = MatMul(params.gate); !s.ok()) return s;
  RmsNormParams norm = params.norm;
  norm.gate = params.gate.y;
  return RmsNorm(norm);
}

struct BackendOptions {
  DType compute_dtype = DType::kF32;  // of matrix products; kF32 or kBF16
  std::string isa;                    // "", or "avx2", "avx512": pins the CPU's instruction set
  int device = 0;                     // of a GPU backend: the CUDA device's index
};

// Bytes of a backend's memory, as the device reports them: shared with all who use it.
struct MemoryReport {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  // What this process holds of it, in use or not. Grows only when something is allocated that what
  // is held has no room for.
  size_t held_bytes = 0;
};

// A device, its memory and what its bits depend on. Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  // The backend's share of the numerics id, for instance
  // "cpu/f32/avx512/onednn-2.6.3/block64/v1": equal strings promise equal bits. A GPU's names the
  // algorithms its weights were given, so it is settled, and may be read, once they are made.
  virtual const std::string& numerics() const = 0;
  virtual DType activation_dtype() const = 0;  // of packed activation rows and convolution inputs
  virtual bool is_host_memory() const = 0;  // buffers may be read and written by the host directly

  // A lane with `threads` CPU threads (ignored by GPU backends); >= 1.
  virtual Status NewOperators(int threads, std::unique_ptr<Operators>* out) = 0;

  // Takes memory from the device until the process holds so much of it: allocations and the
  // workspaces of lanes then come out of what is held, without a call of the driver's that waits
  // for the device. RESOURCE_EXHAUSTED with the bytes. Nothing to do where memory is the host's.
  virtual Status ReserveMemory(size_t /*bytes*/) { return {}; }

  // 64-byte aligned, not zeroed. Returned memory is released by Free only, when all work that uses
  // it is done.
  virtual Status Allocate(size_t bytes, void** out) = 0;
  virtual void Free(void* buffer) = 0;

  // Host memory that copies to and from the backend's run fastest with (page-locked for a GPU);
  // 64-byte aligned, not zeroed. Released by FreeHost only.
  virtual Status AllocateHost(size_t bytes, void** out) {
    *out = ::operator new (bytes, std::align_val_t{64}, std::nothrow);
    if (*out != nullptr) return {};
    return {StatusCode::kResourceExhausted,
            "host buffer: no memory for " + std::to_string(bytes) + " bytes"};
  }
  virtual void FreeHost(void* buffer) { ::operator delete (buffer, std::align_val_t{64}); }

  // OK while the device takes work. An error of a kernel or of the hardware leaves a GPU without
  // use for the rest of the process: every lane's calls fail from then on, and this returns why.
  // Does not wait for lanes.
  virtual Status CheckDevice() { return {}; }

  // kUnsupported where the backend has no memory of its own.
  virtual Status ReadMemory(MemoryReport* out) {
    *out = {};
    return {StatusCode::kUnsupported, "memory report: this backend uses the host's memory"};
  }

  // Converts host weights [out_features, in_features] (row-major) into the backend's form.
  virtual Status NewWeight(const void* host_data, DType dtype, int64_t out_features,
                           int64_t in_features, std::unique_ptr<Weight>* out) = 0;

  // Uniform weights in [-limit, limit), from the seed alone: for benchmarks of shapes that no
  // checkpoint has. kUnsupported where weights are made on the host anyway.
  virtual Status NewRandomWeight(uint64_t /*seed*/, float /*limit*/, int64_t /*out_features*/,
                                 int64_t /*in_features*/, std::unique_ptr<Weight>* out) {
    out->reset();
    return {StatusCode::kUnsupported, "random weights: this backend makes none"};
  }

  // From host kv_b_proj weights [heads * (nope_dim + value_dim), rank], row-major.
  virtual Status NewLatentProjection(const void* host_data, DType dtype, const LatentShape& shape,
                                     std::unique_ptr<LatentProjection>* out) = 0;
};

// The CPU backend. Fails with kInvalidArgument if the machine lacks options.isa, or AVX2. The first
// call pins the whole process to one instruction set; a later call that names another one fails
// too. kUnsupported: compute_dtype kBF16 on AVX2.
Status NewCpuBackend(const BackendOptions& options, std::unique_ptr<Backend>* out);

// The CUDA backend, from its shared library libdeltafill_cuda.so: DELTAFILL_CUDA_LIBRARY names it,
// or it is beside the executable, in ../lib from there, or where the loader looks. bf16 only.
// kUnsupported: the library is not found or was built from another version of these headers, or
// there is no CUDA device of compute capability 8.0 or later (any error of the driver counts as
// none). kInvalidArgument: options.compute_dtype is not kBF16, or options.device is out of range.
Status NewCudaBackend(const BackendOptions& options, std::unique_ptr<Backend>* out);

}  // namespace deltafill::kernels

#endif  // DELTAFILL_KERNELS_OPERATORS_H_
