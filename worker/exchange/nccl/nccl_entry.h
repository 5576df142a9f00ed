// The one entry of libdeltafill_nccl.so that the static core calls.
#ifndef DELTAFILL_WORKER_EXCHANGE_NCCL_NCCL_ENTRY_H_
#define DELTAFILL_WORKER_EXCHANGE_NCCL_NCCL_ENTRY_H_

#include <cstdint>
#include <memory>

#include "worker/exchange/device_link.h"
#include "worker/exchange/nccl/open_transport.h"

namespace deltafill::worker {

// Names the interface's headers and the compiler: classes cross the library's border, so both sides
// must have been built from the same.
inline constexpr char kNcclInterfaceId[] = DELTAFILL_NCCL_INTERFACE_ID;

inline constexpr char kNcclOpenSymbol[] = "deltafill_nccl_transport_open";

// Returns a kernels::StatusCode and writes the status's message. Reads nothing but `interface_id`
// before it has compared it with its own.
using NcclOpenFunction = int (*)(const char* interface_id, const NcclOptions* options,
                                 std::unique_ptr<DeviceTransport>* out, char* message,
                                 int64_t message_size);

}  // namespace deltafill::worker

extern "C" int deltafill_nccl_transport_open(
    const char* interface_id, const deltafill::worker::NcclOptions* options,
    std::unique_ptr<deltafill::worker::DeviceTransport>* out, char* message, int64_t message_size);

#endif  // DELTAFILL_WORKER_EXCHANGE_NCCL_NCCL_ENTRY_H_
