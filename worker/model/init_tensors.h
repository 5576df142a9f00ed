// The tensors of a randomly initialised model and their values.
#ifndef DELTAFILL_WORKER_MODEL_INIT_TENSORS_H_
#define DELTAFILL_WORKER_MODEL_INIT_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "worker/model/config.h"
#include "worker/model/safetensors_writer.h"

namespace deltafill::worker {

enum class InitialValues : uint8_t {
  kNormal,  // mean 0, standard deviation `scale`
  kOnes,
  kALog,    // log of a uniform in [1, 16): decay rates of the heads
  kDtBias,  // inverse softplus of a time step, log-uniform in [1e-3, 0.1]
};

struct InitialTensor {
  TensorPlan plan;
  InitialValues values = InitialValues::kNormal;
  double scale = 1.0;
};

// All tensors of the model, in the order in which they are written. Scales keep activations near
// unit variance through the layers.
std::vector<InitialTensor> PlanInitialTensors(const ModelConfig& config);

uint64_t TensorBytes(const TensorPlan& plan);
// Of all of them.
uint64_t InitialTensorBytes(const ModelConfig& config);

// What a tensor's random numbers start from.
uint64_t InitialStream(uint64_t seed, std::string_view name);

// Bytes of values [first, first + count) of a tensor. A value depends on seed, the tensor's name
// and its index only; random numbers come from a counter, and nothing but log and exp from the C
// library.
std::vector<std::byte> InitialBytes(const InitialTensor& tensor, uint64_t seed, uint64_t first,
                                    uint64_t count);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_INIT_TENSORS_H_
