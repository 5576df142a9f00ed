// Owned 64-byte aligned memory that grows and never throws.
#ifndef DELTAFILL_KERNELS_CPU_ALIGNED_BUFFER_H_
#define DELTAFILL_KERNELS_CPU_ALIGNED_BUFFER_H_

#include <cstddef>
#include <memory>
#include <new>

namespace deltafill::kernels::cpu {

inline constexpr std::align_val_t kBufferAlignment{64};

// No machine has more; sizes above are mistakes, which some allocators answer with abort.
inline constexpr size_t kAllocationBytesMax = size_t{1} << 40;

// Not zeroed; nullptr if the memory is not there. Released by FreeAligned.
inline void* AllocateAligned(size_t bytes) {
  if (bytes > kAllocationBytesMax) return nullptr;
  return ::operator new(bytes == 0 ? 1 : bytes, kBufferAlignment, std::nothrow);
}
inline void FreeAligned(void* memory) { ::operator delete(memory, kBufferAlignment); }

class AlignedBuffer {
 public:
  // Makes room for `bytes`; contents are lost when it grows. False: out of memory, buffer empty.
  [[nodiscard]] bool Reserve(size_t bytes) {
    if (bytes <= bytes_) return true;
    memory_.reset();
    memory_.reset(AllocateAligned(bytes));
    bytes_ = memory_ ? bytes : 0;
    return memory_ != nullptr;
  }

  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_.get());
  }

 private:
  struct Release {
    void operator()(void* memory) const { FreeAligned(memory); }
  };
  std::unique_ptr<void, Release> memory_;
  size_t bytes_ = 0;
};

}  // namespace deltafill::kernels::cpu

#endif  // DELTAFILL_KERNELS_CPU_ALIGNED_BUFFER_H_
