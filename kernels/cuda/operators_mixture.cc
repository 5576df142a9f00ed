// The mixture of experts of a lane.
#include "kernels/cuda/operators.h"

namespace deltafill::kernels::cuda {

Status CudaOperators::MixtureOfExperts(const MixtureParams& params) {
  if (Status s = Enter(); !s.ok()) return s;
  const bool may_upload = recording_ == nullptr;
  return cuda::MixtureOfExperts(params, device_->traits, {}, may_upload, &mixture_, stream_.get());
}

}  // namespace deltafill::kernels::cuda
