// A front server on loopback over a fake engine and a store in memory, and calls to it.
#ifndef DELTAFILL_TESTS_COORDINATOR_FRONT_FIXTURE_H_
#define DELTAFILL_TESTS_COORDINATOR_FRONT_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/front/front_server.h"
#include "proto/prefill.grpc.pb.h"
#include "statestore/engine_store.h"
#include "tests/coordinator/front_fake_engine.h"

namespace deltafill::coordinator {

// All events of a prefill, by kind.
struct PrefillResult {
  grpc::Status status;
  v1::PrefillAccepted accepted;
  std::vector<v1::PrefillProgress> progress;
  std::vector<v1::CheckpointDurable> checkpoints;
  std::string logits;
  v1::PrefillDone done;
  std::string order;  // a letter an event: a, p, c, l, d
};

struct DecodeResult {
  grpc::Status status;
  v1::DecodeStarted started;
  std::vector<uint32_t> ids;
  std::string text;
  v1::DecodeDone done;
};

struct FetchResult {
  grpc::Status status;
  v1::FetchStateStart start;
  std::map<std::string, std::string> tensors;  // bytes by name
  v1::FetchStateEnd end;
};

class FrontTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A prompt of so many tokens that begins like every other one with that seed.
  static std::vector<uint32_t> Tokens(size_t count, uint32_t seed = 1);
  static v1::PrefillRequest PrefillOf(const std::vector<uint32_t>& tokens,
                                      std::vector<uint64_t> checkpoint_at = {});

  // The context of a call by that tenant.
  static std::unique_ptr<grpc::ClientContext> By(const std::string& tenant);
  PrefillResult Prefill(const v1::PrefillRequest& request, const std::string& tenant = "default");
  PrefillResult PrefillInPieces(const std::vector<v1::PrefillRequest>& pieces,
                                const std::string& tenant = "default");
  DecodeResult Decode(const v1::DecodeRequest& request, const std::string& tenant = "default");
  FetchResult Fetch(const v1::FetchStateRequest& request, const std::string& tenant = "default");
  v1::LookupResponse Lookup(const std::vector<uint32_t>& tokens,
                            const std::string& tenant = "default");
  grpc::Status Get(const std::string& state, const std::string& tenant, bool verify,
                   v1::StateDescription* description);

  // Flips a byte in a part of a state of tenant "default".
  void Damage(const std::string& state_name);

  std::shared_ptr<KeyValueEngine> bytes_;
  std::unique_ptr<EngineStore> store_;
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<FrontServer> server_;
  std::unique_ptr<v1::PrefillService::Stub> stub_;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_TESTS_COORDINATOR_FRONT_FIXTURE_H_
