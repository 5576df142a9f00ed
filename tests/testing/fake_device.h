// A backend whose memory is not the host's, for machines without a card: the CPU backend's
// operators, run on a thread a lane some time after they were issued, on memory that faults when
// anybody else touches it. Missing synchronisation shows as wrong bytes, or to the sanitizers.
#ifndef DELTAFILL_TESTS_TESTING_FAKE_DEVICE_H_
#define DELTAFILL_TESTS_TESTING_FAKE_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "kernels/operators.h"

namespace deltafill::test {

// Device addresses are those of the host's memory behind them with this bit set, which no address
// of a process has. The bit makes any access fault; offsets from an address work as they should.
inline constexpr uintptr_t kDeviceAddressBit = uintptr_t{1} << 55;

inline bool IsDeviceAddress(const void* address) {
  return (reinterpret_cast<uintptr_t>(address) & kDeviceAddressBit) != 0;
}

// The memory behind a device address, for what runs on a lane; host addresses stay as they are.
template <typename T>
T* BehindAddress(T* address) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(address) & ~kDeviceAddressBit);
}

// Lanes' calls check nothing when they are issued: what is wrong shows when they run, at the next
// Synchronize. Pointers to the host's memory where a device address belongs are kInternal. A call
// that fails when it runs ends the device: every call of every lane fails from then on.
std::unique_ptr<kernels::Backend> NewFakeDevice(const kernels::BackendOptions& options = {});

// A fake device fails for good, as a GPU does after an error of a kernel or of the hardware.
void BreakDevice(kernels::Backend& device, const std::string& why);

// Runs `work` on a lane of a fake device, after what was issued before; on any other lane at once.
void IssueOnLane(kernels::Operators& lane, std::function<void()> work);

// Allocations of page-locked memory by a fake device so far.
int64_t HostAllocations(kernels::Backend& device);

// Calls that fake devices of this process have replayed from recordings.
int64_t ReplaysRun();

// True if DELTAFILL_TEST_MEMORY is "device": tests of the worker's runtime run twice, and use fake
// devices then.
bool TestsUseDevice();

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_FAKE_DEVICE_H_
