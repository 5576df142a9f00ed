#include "worker/exchange/nccl/open_transport.h"

#include <cstdlib>

#include "kernels/cuda/open_library.h"
#include "worker/exchange/nccl/nccl_entry.h"

namespace deltafill::worker {

kernels::Status OpenNcclTransport(const NcclOptions& options,
                                  std::unique_ptr<DeviceTransport>* out) {
  constexpr kernels::cuda::RuntimeLibrary kLibrary{"NCCL library", "libdeltafill_nccl.so",
                                                   "DELTAFILL_NCCL_LIBRARY", kNcclOpenSymbol};
  // NCCL reads them once, when its first communicator is made.
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  // Between cards of one process NCCL would write straight into a receiver's memory, which is not
  // mapped for other cards.
  setenv("NCCL_P2P_DIRECT_DISABLE", "1", 1);
  void* entry = nullptr;
  if (kernels::Status s = kernels::cuda::OpenEntry(kLibrary, &entry); !s.ok()) return s;
  char message[1024] = "";
  const auto open = reinterpret_cast<NcclOpenFunction>(entry);
  const int code = open(kNcclInterfaceId, &options, out, message, sizeof(message));
  return {static_cast<kernels::StatusCode>(code), message};
}

}  // namespace deltafill::worker
