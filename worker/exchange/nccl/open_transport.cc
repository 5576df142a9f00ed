#include "worker/exchange/nccl/open_transport.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/cuda/open_library.h"
#include "worker/exchange/nccl/nccl_entry.h"

namespace deltafill::worker {

namespace {

struct Variable {
  const char* name;
  const char* value;
};
// Multicast over NVLink is never used. And between cards of one process NCCL would write straight
// into a receiver's memory, which is not mapped for other cards.
constexpr Variable kVariables[] = {{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_P2P_DIRECT_DISABLE", "1"}};

}  // namespace

void SetNcclVariables() {
  for (const auto& [name, value] : kVariables) setenv(name, value, 1);
}

kernels::Status OpenNcclTransport(const NcclOptions& options,
                                  std::unique_ptr<DeviceTransport>* out) {
  constexpr kernels::cuda::RuntimeLibrary kLibrary{"NCCL library", "libdeltafill_nccl.so",
                                                   "DELTAFILL_NCCL_LIBRARY", kNcclOpenSymbol};
  // NCCL reads them once, when its first communicator is made.
  for (const auto& [name, value] : kVariables) {
    const char* const set = std::getenv(name);
    if (set == nullptr || std::strcmp(set, value) != 0) {
      return kernels::InvalidArgument(std::string(name) + ": is not " + value +
                                      " (SetNcclVariables was not called)");
    }
  }
  void* entry = nullptr;
  if (kernels::Status s = kernels::cuda::OpenEntry(kLibrary, &entry); !s.ok()) return s;
  char message[1024] = "";
  const auto open = reinterpret_cast<NcclOpenFunction>(entry);
  const int code = open(kNcclInterfaceId, &options, out, message, sizeof(message));
  return {static_cast<kernels::StatusCode>(code), message};
}

}  // namespace deltafill::worker
