// --device, --dtype and --isa: where a process computes.
#ifndef DELTAFILL_CLIENT_DEVICE_OPTION_H_
#define DELTAFILL_CLIENT_DEVICE_OPTION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/options.h"
#include "kernels/operators.h"

namespace deltafill::client {

struct Device {
  std::string name;  // "cpu", "cuda:1"
  bool is_cuda = false;
  kernels::BackendOptions backend;
};

// At least one, each once. INVALID_ARGUMENT naming the options: a device that is neither cpu nor
// cuda, or twice there; --dtype or --isa that the device does not have.
absl::StatusOr<std::vector<Device>> ParseDevices(const ComputeOptions& options);

// UNIMPLEMENTED if there is no such device, or nothing to drive it with, naming the device.
absl::StatusOr<std::shared_ptr<kernels::Backend>> OpenBackend(const Device& device);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_DEVICE_OPTION_H_
