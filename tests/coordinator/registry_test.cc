#include "coordinator/workers/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace deltafill::coordinator {
namespace {

using ::testing::HasSubstr;

WorkerProfile Profile(const std::string& name) {
  WorkerProfile profile;
  profile.name = name;
  profile.model.fingerprint.bytes.fill(1);
  profile.model.numerics = "exact";
  profile.model.vocabulary = 256;
  profile.model.layers = 2;
  profile.costs = {1e-5, 1e-5, 0.0, 0.5, 0.0};
  profile.range_tokens_max = 64;
  return profile;
}

std::string Refusal(WorkerRegistry& registry, const WorkerProfile& profile) {
  const auto added = registry.Add(kWorkerProtocol, profile);
  EXPECT_TRUE(absl::IsInvalidArgument(added.status())) << added.status();
  return std::string(added.status().message());
}

TEST(WorkerRegistry, NumbersAreNeverUsedTwiceAndNamesAgain) {
  WorkerRegistry registry;
  const auto first = registry.Add(kWorkerProtocol, Profile("a"));
  const auto second = registry.Add(kWorkerProtocol, Profile("b"));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->number, second->number);
  EXPECT_THAT(Refusal(registry, Profile("a")), HasSubstr("hello.name"));
  EXPECT_EQ(registry.Find("a"), first->number);
  registry.Remove(first->number);
  EXPECT_EQ(registry.Find("a"), std::nullopt);
  EXPECT_EQ(registry.Find(first->number), nullptr);
  const auto again = registry.Add(kWorkerProtocol, Profile("a"));
  ASSERT_TRUE(again.ok());
  EXPECT_NE(again->number, first->number);
  EXPECT_NE(again->number, second->number);
}

TEST(WorkerRegistry, RefusalsNameTheField) {
  WorkerRegistry registry;
  EXPECT_TRUE(absl::IsFailedPrecondition(registry.Add(kWorkerProtocol + 1, Profile("a")).status()));
  EXPECT_THAT(Refusal(registry, Profile("")), HasSubstr("hello.name"));
  EXPECT_THAT(Refusal(registry, Profile(std::string(129, 'x'))), HasSubstr("hello.name"));
  WorkerProfile profile = Profile("a");
  profile.model.fingerprint = {};
  EXPECT_THAT(Refusal(registry, profile), HasSubstr("hello.model.fingerprint"));
  profile = Profile("a");
  profile.model.numerics = "";
  EXPECT_THAT(Refusal(registry, profile), HasSubstr("hello.model.numerics"));
  profile = Profile("a");
  profile.model.layers = 0;
  EXPECT_THAT(Refusal(registry, profile), HasSubstr("hello.model.layers"));
  profile = Profile("a");
  profile.model.vocabulary = 0;
  EXPECT_THAT(Refusal(registry, profile), HasSubstr("hello.model.vocabulary"));
  profile = Profile("a");
  profile.range_tokens_max = 63;
  EXPECT_THAT(Refusal(registry, profile), HasSubstr("hello.range_tokens_max"));
  profile.range_tokens_max = 64;
  profile.decode_batch_max = 0;
  EXPECT_THAT(Refusal(registry, profile), HasSubstr("hello.decode_batch_max"));
  profile = Profile("a");
  profile.costs.layer_token_s = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Refusal(registry, profile), HasSubstr("hello.costs"));
  profile = Profile("a");
  profile.costs.handover_fraction = 1.5;
  EXPECT_THAT(Refusal(registry, profile), HasSubstr("handover_fraction"));
  ASSERT_TRUE(registry.Add(kWorkerProtocol, Profile("a")).ok());
  profile = Profile("b");
  profile.model.layers = 3;
  EXPECT_THAT(Refusal(registry, profile), HasSubstr("differ"));
}

}  // namespace
}  // namespace deltafill::coordinator
