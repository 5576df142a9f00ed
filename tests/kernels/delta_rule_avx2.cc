// Linked into delta_rule_avx2_test: runs the same tests with AVX-512 switched off.
#include <gtest/gtest.h>
#include <hwy/targets.h>

namespace deltafill::test {
namespace {

class WithoutAvx512 : public ::testing::Environment {
 public:
  void SetUp() override { hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL); }
};

[[maybe_unused]] ::testing::Environment* const environment =
    ::testing::AddGlobalTestEnvironment(new WithoutAvx512);

}  // namespace
}  // namespace deltafill::test
