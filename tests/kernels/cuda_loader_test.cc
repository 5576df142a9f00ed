// Opening the CUDA backend where its library or a device is missing: an error, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/cuda/open_library.h"
#include "kernels/operators.h"

namespace deltafill::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CudaLoaderTest : public testing::Test {
 protected:
  ~CudaLoaderTest() override { unsetenv("DELTAFILL_CUDA_LIBRARY"); }

  Status OpenFrom(const std::string& path) {
    setenv("DELTAFILL_CUDA_LIBRARY", path.c_str(), 1);
    return NewCudaBackend({.compute_dtype = DType::kBF16}, &backend_);
  }

  std::unique_ptr<Backend> backend_;
};

TEST(LibraryPathsTest, BesideTheExecutableThenTheLoaders) {
  constexpr char kFile[] = "libdeltafill_cuda.so";
  EXPECT_THAT(cuda::LibraryPaths(kFile, "", "/opt/deltafill/bin/deltafill"),
              ElementsAre("/opt/deltafill/bin/libdeltafill_cuda.so",
                          "/opt/deltafill/lib/libdeltafill_cuda.so", "libdeltafill_cuda.so"));
  EXPECT_THAT(cuda::LibraryPaths(kFile, "/else/where.so", "/opt/deltafill/bin/deltafill"),
              ElementsAre("/else/where.so"));
  EXPECT_THAT(cuda::LibraryPaths(kFile, "", ""), ElementsAre(kFile));
}

TEST_F(CudaLoaderTest, NoLibrary) {
  const Status status = OpenFrom("/nowhere/libdeltafill_cuda.so");
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(),
              HasSubstr("CUDA library not found: tried /nowhere/libdeltafill_cuda.so"));
  EXPECT_EQ(backend_, nullptr);
}

TEST_F(CudaLoaderTest, NotALibrary) {
  const Status status = OpenFrom("/proc/self/maps");
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("CUDA library: /proc/self/maps does not load: "));
}

TEST_F(CudaLoaderTest, LibraryWithoutTheEntry) {
  const Status status = OpenFrom(DELTAFILL_TEST_EMPTY_LIBRARY);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("deltafill_cuda_backend_open"));
}

// The entry's code and message come through; the interface's id and the options reach it.
TEST_F(CudaLoaderTest, EntryDecides) {
  const Status status = OpenFrom(DELTAFILL_TEST_REFUSING_LIBRARY);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("dtype 1, interface "));
  EXPECT_THAT(status.message(), HasSubstr("-"));
}

#ifdef DELTAFILL_TEST_CUDA_LIBRARY
// The real one: a backend where there is a device, else the reason.
TEST_F(CudaLoaderTest, RealLibrary) {
  const Status status = OpenFrom(DELTAFILL_TEST_CUDA_LIBRARY);
  if (status.ok()) {
    EXPECT_THAT(backend_->numerics(), testing::StartsWith("cuda/bf16/sm_"));
    EXPECT_FALSE(backend_->is_host_memory());
    return;
  }
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("no CUDA device: "));
  const Status f32 = NewCudaBackend({.compute_dtype = DType::kF32}, &backend_);
  EXPECT_EQ(f32.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(f32.message(), HasSubstr("compute_dtype: 0"));
  EXPECT_EQ(backend_, nullptr);
}
#endif

}  // namespace
}  // namespace deltafill::kernels
