// NCCL as a device transport, and the library's entry.
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/exchange/nccl/communicator.h"
#include "worker/exchange/nccl/nccl_entry.h"

namespace deltafill::worker {
namespace {

using kernels::Status;
using kernels::StatusCode;
using std::chrono::milliseconds;

constexpr milliseconds kProbeTimeout{60'000};  // the first use of NCCL loads its kernels
constexpr int kSender = 0;
constexpr int kReceiver = 1;

static_assert(sizeof(DeviceLinkId) == sizeof(ncclUniqueId));

ncclUniqueId ToNccl(const DeviceLinkId& id) {
  ncclUniqueId nccl;
  std::memcpy(&nccl, id.data(), sizeof(nccl));
  return nccl;
}

Status NewId(DeviceLinkId* out) {
  ncclUniqueId nccl;
  const ncclResult_t result = ncclGetUniqueId(&nccl);
  if (result != ncclSuccess) {
    return {StatusCode::kInternal, std::string("ncclGetUniqueId: ") + ncclGetErrorString(result)};
  }
  std::memcpy(out->data(), &nccl, sizeof(nccl));
  return {};
}

// Device memory of a stream's own order.
class StreamBuffer {
 public:
  explicit StreamBuffer(cudaStream_t stream) : stream_(stream) {}
  ~StreamBuffer() {
    if (memory_ != nullptr) (void)cudaFreeAsync(memory_, stream_);
  }
  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;

  Status Allocate(size_t bytes) {
    return FromCuda(cudaMallocAsync(&memory_, bytes, stream_), "cudaMallocAsync");
  }
  Status Write(const std::vector<uint8_t>& bytes) {
    return FromCuda(
        cudaMemcpyAsync(memory_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_),
        "cudaMemcpyAsync");
  }
  Status Read(std::vector<uint8_t>* bytes) {
    return FromCuda(
        cudaMemcpyAsync(bytes->data(), memory_, bytes->size(), cudaMemcpyDeviceToHost, stream_),
        "cudaMemcpyAsync");
  }
  void* get() const { return memory_; }

 private:
  const cudaStream_t stream_;
  void* memory_ = nullptr;
};

std::vector<uint8_t> Pattern(size_t bytes) {
  std::vector<uint8_t> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<uint8_t>(i * 7 + i / 256);
  return pattern;
}

// Passes a known pattern: the first transfer makes NCCL's connections and loads its kernels, and a
// path that changes bytes is found before it is used.
Status PassPattern(Communicator& communicator, bool sends, bool receives, int peer,
                   const WaitLimit& limit) {
  constexpr size_t kBytes = 64 << 10;
  const std::vector<uint8_t> sent = Pattern(kBytes);
  std::vector<uint8_t> received(kBytes);
  StreamBuffer from(communicator.stream()), to(communicator.stream());
  Status s = from.Allocate(kBytes);
  if (s.ok()) s = to.Allocate(kBytes);
  if (s.ok()) s = from.Write(sent);
  if (!s.ok()) return s;
  s = communicator.Issue(
      "first transfer",
      [&](ncclComm_t comm, cudaStream_t stream) {
        ncclResult_t result = ncclSuccess;
        if (sends) result = ncclSend(from.get(), kBytes, ncclUint8, peer, comm, stream);
        if (!receives || (result != ncclSuccess && result != ncclInProgress)) return result;
        return ncclRecv(to.get(), kBytes, ncclUint8, peer, comm, stream);
      },
      limit);
  if (s.ok()) s = communicator.Wait(limit);
  // Only now: a copy into pageable memory blocks until the stream gets to it.
  if (s.ok() && receives) s = to.Read(&received);
  if (s.ok()) s = communicator.Wait(limit);
  if (!s.ok() || !receives || received == sent) return s;
  return {StatusCode::kInternal, "first transfer: other bytes arrived than were sent"};
}

class NcclLink final : public DeviceLink {
 public:
  NcclLink(std::unique_ptr<Communicator> communicator, milliseconds timeout)
      : communicator_(std::move(communicator)), timeout_(timeout) {}

  Status Send(const void* from, size_t bytes, const StopAsked& stop) override {
    return communicator_->Issue("ncclSend",
                                [&](ncclComm_t comm, cudaStream_t stream) {
                                  return ncclSend(from, bytes, ncclUint8, kReceiver, comm, stream);
                                },
                                {timeout_, stop});
  }

  Status Receive(void* to, size_t bytes, const StopAsked& stop) override {
    const WaitLimit limit{timeout_, stop};
    Status s = communicator_->Issue(
        "ncclRecv",
        [&](ncclComm_t comm, cudaStream_t stream) {
          return ncclRecv(to, bytes, ncclUint8, kSender, comm, stream);
        },
        limit);
    return s.ok() ? communicator_->Wait(limit) : s;
  }

 private:
  const std::unique_ptr<Communicator> communicator_;
  const milliseconds timeout_;
};

class NcclTransport final : public DeviceTransport {
 public:
  static Status Open(const NcclOptions& options, std::unique_ptr<DeviceTransport>* out) {
    std::unique_ptr<NcclTransport> transport(new NcclTransport(options));
    if (Status s = transport->Describe(); !s.ok()) return s;
    if (Status s = transport->Probe(); !s.ok()) return s;
    *out = std::move(transport);
    return {};
  }

  const std::string& card() const override { return card_; }
  const std::string& description() const override { return description_; }

  Status NewLinkId(DeviceLinkId* out) override { return NewId(out); }

  Status Open(const DeviceLinkId& id, LinkEnd end, milliseconds timeout, const StopAsked& stop,
              std::unique_ptr<DeviceLink>* out) override {
    const bool sends = end == LinkEnd::kSender;
    const WaitLimit limit{timeout, stop};
    std::unique_ptr<Communicator> made;
    Status s =
        Communicator::Create(options_, ToNccl(id), 2, sends ? kSender : kReceiver, limit, &made);
    if (s.ok()) s = PassPattern(*made, sends, !sends, sends ? kReceiver : kSender, limit);
    if (s.ok()) *out = std::make_unique<NcclLink>(std::move(made), options_.transfer_timeout);
    return s;
  }

 private:
  explicit NcclTransport(const NcclOptions& options) : options_(options) {}

  Status Describe() {
    cudaDeviceProp properties;
    Status s =
        FromCuda(cudaGetDeviceProperties(&properties, options_.device), "cudaGetDeviceProperties");
    if (!s.ok()) return s;
    card_ = "GPU-";
    for (int i = 0; i < 16; ++i) {
      char hex[4];
      std::snprintf(hex, sizeof(hex), "%02x", static_cast<uint8_t>(properties.uuid.bytes[i]));
      if (i == 4 || i == 6 || i == 8 || i == 10) card_ += '-';
      card_ += hex;
    }
    int version = 0;
    (void)ncclGetVersion(&version);
    description_ = "NCCL " + std::to_string(version / 10000) + "." +
                   std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
    return {};
  }

  // One rank that sends to itself.
  Status Probe() {
    DeviceLinkId id;
    if (Status s = NewId(&id); !s.ok()) return s;
    const StopAsked never;
    const WaitLimit limit{kProbeTimeout, never};
    std::unique_ptr<Communicator> made;
    Status s = Communicator::Create(options_, ToNccl(id), 1, 0, limit, &made);
    return s.ok() ? PassPattern(*made, true, true, 0, limit) : s;
  }

  const NcclOptions options_;
  std::string card_;
  std::string description_;
};

Status CheckOptions(const NcclOptions& options) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    (void)cudaGetLastError();
    const std::string why = error == cudaSuccess ? "the driver lists none"
                                                 : FromCuda(error, "cudaGetDeviceCount").message();
    return {StatusCode::kUnsupported, "no CUDA device: " + why};
  }
  if (options.device < 0 || options.device >= devices) {
    return kernels::InvalidArgument("device: " + std::to_string(options.device) +
                                    " is not in [0, " + std::to_string(devices) + ")");
  }
  if (options.blocks_per_transfer < 1 || options.blocks_per_transfer > 32) {
    return kernels::InvalidArgument(
        "blocks_per_transfer: " + std::to_string(options.blocks_per_transfer) +
        " is not in [1, 32]");
  }
  return {};
}

}  // namespace
}  // namespace deltafill::worker

extern "C" int deltafill_nccl_transport_open(
    const char* interface_id, const deltafill::worker::NcclOptions* options,
    std::unique_ptr<deltafill::worker::DeviceTransport>* out, char* message, int64_t message_size) {
  using namespace deltafill::worker;
  Status status;
  if (std::strcmp(interface_id, kNcclInterfaceId) != 0) {
    status = {StatusCode::kUnsupported,
              std::string("the library was built from other headers: it has interface ") +
                  kNcclInterfaceId + ", the program " + interface_id};
  } else {
    status = CheckOptions(*options);
    if (status.ok()) status = NcclTransport::Open(*options, out);
  }
  std::snprintf(message, static_cast<size_t>(message_size), "%s", status.message().c_str());
  return static_cast<int>(status.code());
}
