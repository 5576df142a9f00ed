#include "kernels/cpu/lane_scratch.h"

#include "kernels/cpu/validate.h"

namespace deltafill::kernels::cpu {

Status LaneScratch::ReservePerThread(size_t bytes, const char* operation) {
  for (AlignedBuffer& buffer : per_thread) {
    if (!buffer.Reserve(bytes)) return OutOfMemory(operation, bytes);
  }
  return {};
}

Status LaneScratch::ReserveShared(size_t bytes, const char* operation) {
  return shared.Reserve(bytes) ? Status() : OutOfMemory(operation, bytes);
}

}  // namespace deltafill::kernels::cpu
