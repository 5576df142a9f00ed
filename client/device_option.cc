#include "client/device_option.h"

#include <set>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/model/status_steps.h"

namespace deltafill::client {
namespace {

constexpr char kCudaPrefix[] = "cuda:";
constexpr int kDevicesMax = 256;

absl::StatusOr<std::vector<int>> ParseIndices(const std::string& text) {
  const std::string expected =
      absl::StrCat("--device: '", text, "' is not cpu, cuda, cuda:N or cuda:N,M,...");
  if (text == "cuda") return std::vector<int>{0};
  if (text.rfind(kCudaPrefix, 0) != 0) return absl::InvalidArgumentError(expected);
  std::vector<int> indices;
  std::set<int> seen;
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(text.substr(sizeof(kCudaPrefix) - 1), ','))) {
    int index = 0;
    if (!absl::SimpleAtoi(part, &index) || index < 0 || index >= kDevicesMax) {
      return absl::InvalidArgumentError(expected);
    }
    if (!seen.insert(index).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device: '", text, "' names GPU ", index, " twice"));
    }
    indices.push_back(index);
  }
  return indices;
}

}  // namespace

absl::StatusOr<std::vector<Device>> ParseDevices(const ComputeOptions& options) {
  if (options.device == "cpu") {
    Device cpu{.name = "cpu"};
    cpu.backend.compute_dtype =
        options.compute_dtype == "bf16" ? kernels::DType::kBF16 : kernels::DType::kF32;
    cpu.backend.isa = options.isa;
    return std::vector<Device>{cpu};
  }
  DELTAFILL_TRY_ASSIGN(indices, ParseIndices(options.device));
  if (!options.compute_dtype.empty() && options.compute_dtype != "bf16") {
    return absl::InvalidArgumentError(absl::StrCat("--dtype ", options.compute_dtype, ": --device ",
                                                   options.device, " computes in bf16 only"));
  }
  if (!options.isa.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--isa ", options.isa, ": is the CPU's, and --device is ", options.device));
  }
  std::vector<Device> devices;
  for (int index : indices) {
    Device gpu{.name = absl::StrCat(kCudaPrefix, index), .is_cuda = true};
    gpu.backend.compute_dtype = kernels::DType::kBF16;
    gpu.backend.device = index;
    devices.push_back(gpu);
  }
  return devices;
}

absl::StatusOr<std::shared_ptr<kernels::Backend>> OpenBackend(const Device& device) {
  std::unique_ptr<kernels::Backend> backend;
  const absl::Status opened =
      worker::FromOperator(device.is_cuda ? kernels::NewCudaBackend(device.backend, &backend)
                                          : kernels::NewCpuBackend(device.backend, &backend));
  if (!opened.ok()) {
    return absl::Status(opened.code(), absl::StrCat(device.name, ": ", opened.message()));
  }
  return std::shared_ptr<kernels::Backend>(std::move(backend));
}

}  // namespace deltafill::client
