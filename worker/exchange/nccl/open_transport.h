// The NCCL transport, from its shared library.
#ifndef DELTAFILL_WORKER_EXCHANGE_NCCL_OPEN_TRANSPORT_H_
#define DELTAFILL_WORKER_EXCHANGE_NCCL_OPEN_TRANSPORT_H_

#include <chrono>
#include <memory>

#include "kernels/status.h"
#include "worker/exchange/device_link.h"

namespace deltafill::worker {

struct NcclOptions {
  int device = 0;  // CUDA's index
  // Thread blocks of one transfer. They hold their multiprocessors meanwhile, and kernels that need
  // all of them at once wait: few blocks for long, or more for a shorter time.
  int blocks_per_transfer = 4;
  // A Receive that got nothing for so long fails. Well under ExchangeLinkLimits::unreachable_after:
  // bytes that do not come by this way go through the host before the peer counts as lost.
  std::chrono::milliseconds transfer_timeout{3'000};
};

// Sets the variables of the process that NCCL must find: NCCL_NVLS_ENABLE=0 (NVLink multicast is
// never used) and NCCL_P2P_DIRECT_DISABLE=1. Before the process starts its first thread: setting a
// variable while another thread reads one is not safe.
void SetNcclVariables();

// From libdeltafill_nccl.so: DELTAFILL_NCCL_LIBRARY names it, or it is found as the CUDA backend's
// library is. Passes bytes from the card to itself through NCCL before it returns, which takes a
// second or so. kUnsupported: no such library (or NCCL itself is missing), or another build's; no
// CUDA device. kInvalidArgument naming the field, or the variable that SetNcclVariables would have
// set. kInternal: NCCL does not work on this card.
kernels::Status OpenNcclTransport(const NcclOptions& options,
                                  std::unique_ptr<DeviceTransport>* out);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_NCCL_OPEN_TRANSPORT_H_
