// NCCL links on real cards. With one card: NCCL passes bytes to itself, and what cannot work is
// refused in time. With two: values, bandwidth, between threads and between processes, and what
// remains when an end is killed.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/device_memory.h"
#include "worker/exchange/nccl/open_transport.h"

namespace deltafill::test {
namespace {

using kernels::Status;
using kernels::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using worker::DeviceLink;
using worker::DeviceLinkId;
using worker::DeviceTransport;
using worker::LinkEnd;
using worker::NcclOptions;
using Clock = std::chrono::steady_clock;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSizes[] = {kMiB / 16, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB};
constexpr int kRounds = 10;
constexpr seconds kOpenTimeout{60};
constexpr char kIdVariable[] = "DELTAFILL_TEST_LINK_ID";
constexpr char kRoleVariable[] = "DELTAFILL_TEST_LINK_ROLE";
constexpr char kBlocksVariable[] = "DELTAFILL_TEST_LINK_BLOCKS";

int CardCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::unique_ptr<DeviceTransport> MustOpen(const NcclOptions& options) {
  std::unique_ptr<DeviceTransport> transport;
  worker::SetNcclVariables();
  const Status status = OpenNcclTransport(options, &transport);
  if (!status.ok()) throw std::runtime_error(status.message());
  return transport;
}

std::unique_ptr<DeviceLink> MustLink(DeviceTransport& transport, const DeviceLinkId& id,
                                     LinkEnd end) {
  std::unique_ptr<DeviceLink> link;
  const Status status = transport.Open(id, end, kOpenTimeout, nullptr, &link);
  if (!status.ok()) throw std::runtime_error(status.message());
  return link;
}

std::vector<uint8_t> Pattern(size_t bytes) {
  std::vector<uint8_t> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    pattern[i] = static_cast<uint8_t>((i * 2654435761u) >> 11) ^ static_cast<uint8_t>(bytes >> 16);
  }
  return pattern;
}

// All sizes, each kRounds times.
void SendAll(DeviceLink& link, std::vector<std::unique_ptr<DeviceMemory>>* alive) {
  for (size_t bytes : kSizes) {
    alive->push_back(std::make_unique<DeviceMemory>(Pattern(bytes)));
    for (int i = 0; i < kRounds; ++i) {
      const Status status = link.Send(alive->back()->as<void>(), bytes, nullptr);
      if (!status.ok()) throw std::runtime_error(status.message());
    }
  }
}

void ReceiveAll(DeviceLink& link, const char* between, int blocks) {
  for (size_t bytes : kSizes) {
    const DeviceMemory memory(bytes);
    double least_s = 1e9;
    for (int i = 0; i < kRounds; ++i) {
      const auto start = Clock::now();
      const Status status = link.Receive(memory.as<void>(), bytes, nullptr);
      if (!status.ok()) throw std::runtime_error(status.message());
      if (i > 0) {
        least_s = std::min(least_s, std::chrono::duration<double>(Clock::now() - start).count());
      }
    }
    EXPECT_TRUE(memory.Read<uint8_t>() == Pattern(bytes)) << bytes << " bytes differ";
    std::printf("nccl link between %s, %d blocks: %zu bytes, best %.1f us, %.1f GB/s\n", between,
                blocks, bytes, least_s * 1e6, static_cast<double>(bytes) / least_s / 1e9);
  }
}

class NcclLinkTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* const wanted = std::getenv("DELTAFILL_TEST_GPU");
    if (CardCount() > 0) return;
    if (wanted != nullptr && std::string(wanted) == "required") FAIL() << "no CUDA device";
    std::printf("NO CUDA DEVICE\n");
    GTEST_SKIP() << "no CUDA device";
  }
};

class NcclTwoCardsTest : public NcclLinkTest {
 protected:
  void SetUp() override {
    NcclLinkTest::SetUp();
    if (IsSkipped() || CardCount() >= 2) return;
    std::printf("ONLY ONE CUDA DEVICE: links between cards are not tested\n");
    GTEST_SKIP() << "only one CUDA device";
  }
};

TEST_F(NcclLinkTest, PassesBytesFromACardToItself) {
  for (int blocks : {1, 4, 16}) {
    const auto transport = MustOpen({.blocks_per_transfer = blocks});
    EXPECT_THAT(transport->card(), testing::MatchesRegex("GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-.*"));
    EXPECT_THAT(transport->description(), testing::StartsWith("NCCL 2."));
    EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
  }
}

TEST_F(NcclLinkTest, OptionsAreChecked) {
  std::unique_ptr<DeviceTransport> transport;
  worker::SetNcclVariables();
  Status status = OpenNcclTransport({.device = CardCount()}, &transport);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("device: "));
  status = OpenNcclTransport({.blocks_per_transfer = 0}, &transport);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("blocks_per_transfer: 0"));
}

TEST_F(NcclLinkTest, OpeningWithoutAPeerEnds) {
  const auto transport = MustOpen({});
  std::unique_ptr<DeviceLink> link;
  for (LinkEnd end : {LinkEnd::kSender, LinkEnd::kReceiver}) {
    DeviceLinkId id;
    ASSERT_TRUE(transport->NewLinkId(&id).ok());
    const auto start = Clock::now();
    Status status = transport->Open(id, end, milliseconds(1500), nullptr, &link);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(status.message(), testing::HasSubstr("not done within 1500 ms"));
    ASSERT_TRUE(transport->NewLinkId(&id).ok());
    status = transport->Open(
        id, end, seconds(60), [] { return true; }, &link);
    EXPECT_THAT(status.message(), testing::HasSubstr("told to stop"));
    EXPECT_LT(Clock::now() - start, seconds(20));
    EXPECT_EQ(link, nullptr);
  }
}

TEST_F(NcclLinkTest, ACardHasNoLinkWithItself) {
  const auto one = MustOpen({}), other = MustOpen({});
  DeviceLinkId id;
  ASSERT_TRUE(one->NewLinkId(&id).ok());
  const auto open = [&](DeviceTransport& transport, LinkEnd end) {
    std::unique_ptr<DeviceLink> link;
    return transport.Open(id, end, seconds(5), nullptr, &link);
  };
  auto receiver =
      std::async(std::launch::async, [&] { return open(*other, LinkEnd::kReceiver).ok(); });
  EXPECT_FALSE(open(*one, LinkEnd::kSender).ok());
  EXPECT_FALSE(receiver.get());
}

TEST_F(NcclTwoCardsTest, BetweenThreads) {
  const NcclOptions options{.device = 0};
  const auto from = MustOpen(options), to = MustOpen({.device = 1});
  EXPECT_NE(from->card(), to->card());
  DeviceLinkId id;
  ASSERT_TRUE(from->NewLinkId(&id).ok());
  std::vector<std::unique_ptr<DeviceMemory>> alive;
  std::unique_ptr<DeviceLink> sender;
  auto sending = std::async(std::launch::async, [&] {
    CheckCuda(cudaSetDevice(0));
    sender = MustLink(*from, id, LinkEnd::kSender);
    SendAll(*sender, &alive);
  });
  CheckCuda(cudaSetDevice(1));
  const auto receiver = MustLink(*to, id, LinkEnd::kReceiver);
  ReceiveAll(*receiver, "threads", options.blocks_per_transfer);
  sending.get();
  CheckCuda(cudaSetDevice(0));
}

// The other end, in a process of its own on card 1.
class Child {
 public:
  Child(const DeviceLinkId& id, const std::string& role, int blocks = 4) {
    std::string hex;
    for (char byte : id) {
      char digits[3];
      std::snprintf(digits, sizeof(digits), "%02x", static_cast<uint8_t>(byte));
      hex += digits;
    }
    setenv(kIdVariable, hex.c_str(), 1);
    setenv(kRoleVariable, role.c_str(), 1);
    setenv(kBlocksVariable, std::to_string(blocks).c_str(), 1);
    std::string program = "/proc/self/exe", filter = "--gtest_filter=NcclChild.*";
    std::string disabled = "--gtest_also_run_disabled_tests";
    char* arguments[] = {program.data(), filter.data(), disabled.data(), nullptr};
    std::fflush(stdout);
    EXPECT_EQ(posix_spawn(&process_, "/proc/self/exe", nullptr, nullptr, arguments, environ), 0);
    unsetenv(kRoleVariable);
  }
  ~Child() { Kill(); }

  void Kill() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    Wait();
  }
  int Wait() {
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = 0;
    return status;
  }

 private:
  pid_t process_ = 0;
};

TEST(NcclChild, DISABLED_OtherEnd) {
  const char* const role = std::getenv(kRoleVariable);
  ASSERT_NE(role, nullptr) << "run by the tests between processes only";
  const std::string hex = std::getenv(kIdVariable);
  const int blocks = std::atoi(std::getenv(kBlocksVariable));
  DeviceLinkId id;
  for (size_t i = 0; i < id.size(); ++i) {
    id[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  CheckCuda(cudaSetDevice(1));
  const auto transport = MustOpen({.device = 1, .blocks_per_transfer = blocks});
  const bool receives = std::string(role) != "sends nothing";
  const auto link = MustLink(*transport, id, receives ? LinkEnd::kReceiver : LinkEnd::kSender);
  if (std::string(role) != "receives") std::this_thread::sleep_for(seconds(60));  // to be killed
  ReceiveAll(*link, "processes", blocks);
}

TEST_F(NcclTwoCardsTest, BetweenProcesses) {
  for (int blocks : {1, 2, 4, 8, 16}) {
    const auto transport = MustOpen({.device = 0, .blocks_per_transfer = blocks});
    DeviceLinkId id;
    ASSERT_TRUE(transport->NewLinkId(&id).ok());
    Child child(id, "receives", blocks);
    std::vector<std::unique_ptr<DeviceMemory>> alive;
    const auto link = MustLink(*transport, id, LinkEnd::kSender);
    SendAll(*link, &alive);
    EXPECT_EQ(child.Wait(), 0);
  }
}

TEST_F(NcclTwoCardsTest, AKilledReceiverLeavesTheCardUsable) {
  const auto transport = MustOpen({.device = 0});
  const DeviceMemory memory(64 * kMiB);
  for (int round = 0; round < 2; ++round) {
    DeviceLinkId id;
    ASSERT_TRUE(transport->NewLinkId(&id).ok());
    Child child(id, "receives nothing");
    auto link = MustLink(*transport, id, LinkEnd::kSender);
    ASSERT_TRUE(link->Send(memory.as<void>(), kMiB, nullptr).ok());
    // A state that fits NCCL's buffers leaves the card before anybody receives it.
    auto small = std::async(std::launch::async, [] { return cudaDeviceSynchronize(); });
    std::printf("nccl link: 1 MiB %s before it is received\n",
                small.wait_for(seconds(3)) == std::future_status::ready ? "is sent" : "waits");
    ASSERT_TRUE(link->Send(memory.as<void>(), 64 * kMiB, nullptr).ok());
    child.Kill();
    const auto start = Clock::now();
    link.reset();
    CheckCuda(cudaDeviceSynchronize());
    EXPECT_LT(Clock::now() - start, seconds(8));
    EXPECT_EQ(small.get(), cudaSuccess);
  }
}

TEST_F(NcclTwoCardsTest, AKilledSenderIsNoticed) {
  const auto transport =
      MustOpen({.device = 0, .transfer_timeout = std::chrono::milliseconds(1500)});
  const DeviceMemory memory(kMiB);
  DeviceLinkId id;
  ASSERT_TRUE(transport->NewLinkId(&id).ok());
  Child child(id, "sends nothing");
  const auto link = MustLink(*transport, id, LinkEnd::kReceiver);
  child.Kill();
  const auto start = Clock::now();
  const Status status = link->Receive(memory.as<void>(), kMiB, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  std::printf("nccl link, sender killed: %s\n", status.message().c_str());
  EXPECT_FALSE(link->Receive(memory.as<void>(), kMiB, nullptr).ok());
  EXPECT_LT(Clock::now() - start, seconds(10));
  CheckCuda(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace deltafill::test
