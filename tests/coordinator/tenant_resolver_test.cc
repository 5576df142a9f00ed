#include "coordinator/front/tenant_resolver.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace deltafill::coordinator {
namespace {

// SHA-256 of "alpha-token" and "beta-token".
constexpr char kAlphaHash[] = "a336d9b1d8b8647875238537ca5087b0ea335afd2032936aecdffc3e4b13f720";
constexpr char kBetaHash[] = "863d63c0bd3a94bfca84ed2063a7355a226faff82ca50b90158bf183aa1a9e61";

std::unique_ptr<TenantResolver> Credentials() {
  auto resolver = NewCredentialsResolver(std::string("# tenants\n\nalpha ") + kAlphaHash +
                                         "\r\n  beta\t" + kBetaHash + "  \n");
  EXPECT_TRUE(resolver.ok()) << resolver.status();
  return *std::move(resolver);
}

TEST(TrustingResolver, TakesTheNameOrDefault) {
  const auto resolver = NewTrustingResolver();
  EXPECT_FALSE(resolver->ChecksCredentials());
  EXPECT_EQ(*resolver->Resolve({}), "default");
  EXPECT_EQ(*resolver->Resolve({{"deltafill-tenant", "team.A_1-x"}}), "team.A_1-x");
  EXPECT_EQ(*resolver->Resolve({{"authorization", "Bearer whatever"}}), "default");
}

TEST(TrustingResolver, RefusesBadNames) {
  const auto resolver = NewTrustingResolver();
  for (const std::string& name : {std::string(), std::string(65, 'a'), std::string("a b"),
                                  std::string("a/b"), std::string("\xc3\xa4")}) {
    const auto tenant = resolver->Resolve({{"deltafill-tenant", name}});
    EXPECT_EQ(tenant.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(tenant.status().message().find("deltafill-tenant"), std::string::npos);
    EXPECT_NE(tenant.status().message().find("64"), std::string::npos);
  }
  EXPECT_TRUE(resolver->Resolve({{"deltafill-tenant", std::string(64, 'a')}}).ok());
  EXPECT_FALSE(resolver->Resolve({{"deltafill-tenant", "a"}, {"deltafill-tenant", "b"}}).ok());
}

TEST(CredentialsResolver, KnowsItsTokens) {
  const auto resolver = Credentials();
  EXPECT_TRUE(resolver->ChecksCredentials());
  EXPECT_EQ(*resolver->Resolve({{"authorization", "Bearer alpha-token"}}), "alpha");
  EXPECT_EQ(*resolver->Resolve({{"authorization", "bearer beta-token"}}), "beta");
}

TEST(CredentialsResolver, NobodyElseIsLetIn) {
  const auto resolver = Credentials();
  const CallMetadata cases[] = {
      {},
      {{"deltafill-tenant", "alpha"}},
      {{"authorization", ""}},
      {{"authorization", "Bearer "}},
      {{"authorization", "Bearer alpha-toke"}},
      {{"authorization", "Bearer alpha-token "}},
      {{"authorization", "Basic alpha-token"}},
      {{"authorization", "alpha-token"}},
      {{"authorization", std::string("Bearer ") + kAlphaHash}},
      {{"authorization", "Bearer " + std::string(100000, 'a')}},
      {{"authorization", "Bearer alpha-token"}, {"authorization", "Bearer beta-token"}},
  };
  for (const CallMetadata& metadata : cases) {
    EXPECT_EQ(resolver->Resolve(metadata).status().code(), absl::StatusCode::kUnauthenticated);
  }
  // The name in the metadata does not override the token.
  EXPECT_EQ(
      *resolver->Resolve({{"authorization", "Bearer alpha-token"}, {"deltafill-tenant", "beta"}}),
      "alpha");
}

TEST(CredentialsResolver, BadFilesNameTheLine) {
  const std::string good = std::string("alpha ") + kAlphaHash + "\n";
  const std::pair<std::string, const char*> cases[] = {
      {"", "no tenant"},
      {"# nothing\n", "no tenant"},
      {good + "beta\n", "line 2"},
      {good + "beta 1234\n", "line 2"},
      {good + "b/a " + kBetaHash + "\n", "line 2"},
      {good + "beta " + kBetaHash + " more\n", "line 2"},
      {good + "beta " + kAlphaHash + "\n", "line 2"},
  };
  for (const auto& [contents, expected] : cases) {
    const auto resolver = NewCredentialsResolver(contents);
    EXPECT_EQ(resolver.status().code(), absl::StatusCode::kInvalidArgument) << contents;
    EXPECT_NE(resolver.status().message().find(expected), std::string::npos) << resolver.status();
  }
}

TEST(CredentialsResolver, ReadsItsFile) {
  const std::string path = ::testing::TempDir() + "/tenant_resolver_test_credentials";
  std::ofstream(path) << "alpha " << kAlphaHash << "\n";
  const auto resolver = LoadCredentials(path);
  ASSERT_TRUE(resolver.ok()) << resolver.status();
  EXPECT_EQ(*(*resolver)->Resolve({{"authorization", "Bearer alpha-token"}}), "alpha");
  std::filesystem::remove(path);
  const auto missing = LoadCredentials(path);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find(path), std::string::npos);
}

TEST(ListenAddress, LoopbackIsRecognised) {
  for (const char* address :
       {"127.0.0.1:1", "127.1.2.3:0", "localhost:80", "[::1]:80", "::1", "unix:/tmp/x",
        "unix-abstract:x", "ipv4:127.0.0.1:1", "dns:///localhost:1"}) {
    EXPECT_TRUE(IsLoopbackAddress(address)) << address;
  }
  for (const char* address : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.example.org:1", ":1", "",
                              "localhost.example.org:1", "1127.0.0.1:1", "[::10]:1", "*:1"}) {
    EXPECT_FALSE(IsLoopbackAddress(address)) << address;
  }
}

TEST(ListenAddress, OpenPortsNeedCredentials) {
  EXPECT_TRUE(CheckListenAddress("127.0.0.1:1", *NewTrustingResolver()).ok());
  EXPECT_TRUE(CheckListenAddress("0.0.0.0:1", *Credentials()).ok());
  const absl::Status status = CheckListenAddress("0.0.0.0:1", *NewTrustingResolver());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("0.0.0.0:1"), std::string::npos);
  EXPECT_NE(status.message().find("credentials"), std::string::npos);
}

}  // namespace
}  // namespace deltafill::coordinator
