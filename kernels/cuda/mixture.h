// The mixture of experts of a lane: checked params to passes of routing and
// grouped products.
#ifndef DELTAFILL_KERNELS_CUDA_MIXTURE_H_
#define DELTAFILL_KERNELS_CUDA_MIXTURE_H_

#include <memory>
#include <vector>

#include "kernels/cuda/grouped_product.h"
#include "kernels/cuda/runtime.h"
#include "kernels/mixture_of_experts.h"

namespace deltafill::kernels::cuda {

// Where a layer's experts are on the device, for the grouped products. Found again by all that it
// is made from, addresses and widths, so that it stays right whatever weights come and go.
class ExpertTable {
 public:
  // The device addresses of gate_up and down, expert by expert.
  // kInvalidArgument for weights of another backend.
  static Status ReadAddresses(const MixtureParams& params, std::vector<const void*>* out);

  // `maps`: makes tensor maps too. Complete when it returns.
  Status Create(const MixtureShape& shape, std::vector<const void*> addresses, bool maps,
                cudaStream_t stream);

  // Whether it was made from these; `maps` as in Create.
  bool Serves(const MixtureShape& shape, const std::vector<const void*>& addresses,
              bool maps) const;
  bool has_maps() const { return maps_.bytes() > 0; }
  const __nv_bfloat16* const* matrices(int product) const {
    return pointers_.as<const __nv_bfloat16*>() + product * experts_;
  }
  const TensorMap* maps(int product) const { return maps_.as<TensorMap>() + product * experts_; }

 private:
  std::vector<const void*> addresses_;
  int experts_ = 0;
  int64_t hidden_ = 0, expert_width_ = 0;
  DeviceBuffer pointers_;  // of all gate_up, then of all down
  DeviceBuffer maps_;      // likewise
};

// Device memory that a mixture works in; grows with the longest pass so far.
// Tables are kept: some tens of kilobytes a layer.
struct MixtureWorkspace {
  DeviceBuffer routing;
  DeviceBuffer packed;  // rows for experts, then their outputs
  DeviceBuffer inner;
  std::vector<std::unique_ptr<ExpertTable>> tables;
};

// Overrides for tests and measurements; only the portable path has bits of its
// own.
struct MixtureTuning {
  bool force_portable = false;
  int cluster = 0;  // of the grouped products' CTAs, 1 or 2; 0: by the number of rows
  // Leaves out all but the products, or runs the routing alone: outputs mean
  // nothing.
  bool products_only = false;
  bool routing_only = false;
};

// `may_upload`: whether a table that is not there may be made; kUnsupported
// otherwise.
Status MixtureOfExperts(const MixtureParams& params, const DeviceTraits& device,
                        const MixtureTuning& tuning, bool may_upload, MixtureWorkspace* workspace,
                        cudaStream_t stream);

}  // namespace deltafill::kernels::cuda

#endif  // DELTAFILL_KERNELS_CUDA_MIXTURE_H_
