// Opening the NCCL transport where its library or a device is missing: an error, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "worker/exchange/nccl/open_transport.h"

namespace deltafill::worker {
namespace {

using kernels::Status;
using kernels::StatusCode;
using testing::HasSubstr;

Status OpenFrom(const std::string& path, const NcclOptions& options = {}) {
  SetNcclVariables();
  setenv("DELTAFILL_NCCL_LIBRARY", path.c_str(), 1);
  std::unique_ptr<DeviceTransport> transport;
  const Status status = OpenNcclTransport(options, &transport);
  EXPECT_EQ(status.ok(), transport != nullptr);
  unsetenv("DELTAFILL_NCCL_LIBRARY");
  return status;
}

TEST(NcclLoaderTest, NoLibrary) {
  const Status status = OpenFrom("/nowhere/libdeltafill_nccl.so");
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(),
              HasSubstr("NCCL library not found: tried /nowhere/libdeltafill_nccl.so"));
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
}

TEST(NcclLoaderTest, VariablesThatAreNotSetAreNamed) {
  SetNcclVariables();
  unsetenv("NCCL_P2P_DIRECT_DISABLE");
  std::unique_ptr<DeviceTransport> transport;
  const Status status = OpenNcclTransport({}, &transport);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("NCCL_P2P_DIRECT_DISABLE"));
  EXPECT_EQ(transport, nullptr);
}

#ifdef DELTAFILL_TEST_NCCL_LIBRARY
TEST(NcclLoaderTest, RealLibrary) {
  const Status status = OpenFrom(DELTAFILL_TEST_NCCL_LIBRARY);
  if (status.ok()) return;
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("no CUDA device: "));
}
#endif

}  // namespace
}  // namespace deltafill::worker
