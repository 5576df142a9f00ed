// What the model's tests share: temporary directories, model directories to change, and a port that
// keeps the boundary states of one range in memory.
#ifndef DELTAFILL_TESTS_WORKER_MODEL_FIXTURE_H_
#define DELTAFILL_TESTS_WORKER_MODEL_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/model/boundary_port.h"
#include "worker/model/model.h"

namespace deltafill::test {
using namespace worker;  // what is tested

// Removed with everything in it at the end of its life.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void WriteFile(const std::string& path, const std::string& contents);
std::string ReadFile(const std::string& path);
// The committed checkpoint of that name, copied: loading one writes its fingerprint beside it.
void CopyFixture(const std::string& name, const std::string& to);
std::string FixturePath(const std::string& name);

std::shared_ptr<kernels::Backend> MakeCpuBackend();
// Fails the test and returns nullptr if the directory does not load.
std::unique_ptr<Model> LoadOrFail(const std::string& directory);

// A prefix state in host memory, laid out by the model.
using PrefixState = std::vector<std::byte>;
PrefixState ZeroState(const Model& model);

// Gives the range one state to start from and keeps what it hands on. Records the calls.
class MemoryPort final : public BoundaryPort {
 public:
  MemoryPort(const StateLayout& layout, const PrefixState* start, size_t captures);

  absl::StatusOr<const void*> Await(uint32_t layer, PartKind kind) override;
  void* Outgoing(uint32_t layer, PartKind kind) override;
  absl::Status HandOn(uint32_t layer, PartKind kind) override;
  void* Capture(int capture, uint32_t layer, PartKind kind) override;
  absl::StatusOr<kernels::LatentSequence> Latents(uint32_t layer) override;
  absl::Status ShareLatents(uint32_t layer) override;
  absl::Status TaskDone(uint32_t layer) override;

  const PrefixState& outgoing() const { return outgoing_; }
  const std::vector<PrefixState>& captures() const { return captures_; }
  const std::vector<std::string>& calls() const { return calls_; }
  void cancel_at(uint32_t layer) { cancel_layer_ = layer; }
  void want_no_outgoing() { outgoing_wanted_ = false; }
  // Holds the latents before the range and has room for the range's own.
  void use_latents(LatentCache* latents, int64_t first_token) {
    latents_ = latents;
    first_token_ = first_token;
  }

 private:
  std::byte* Place(PrefixState& state, uint32_t layer, PartKind kind);
  void Record(const char* call, uint32_t layer, PartKind kind);

  const StateLayout& layout_;
  const PrefixState* start_;  // nullptr: the zero state
  PrefixState outgoing_;
  std::vector<PrefixState> captures_;
  std::vector<std::string> calls_;
  uint32_t cancel_layer_ = ~0u;
  bool outgoing_wanted_ = true;
  LatentCache* latents_ = nullptr;
  int64_t first_token_ = 0;
};

// A committed checkpoint, the parameter, loaded, and a lane of rows_max rows on one thread.
class LoadedModelTest : public testing::TestWithParam<const char*> {
 protected:
  explicit LoadedModelTest(int64_t rows_max) : rows_max_(rows_max) {}

  void SetUp() override {
    CopyFixture(GetParam(), directory_.path() + "/model");
    model_ = LoadOrFail(directory_.path() + "/model");
    ASSERT_NE(model_, nullptr);
    lane_ = NewLane(1);
  }

  std::shared_ptr<Lane> NewLane(int threads) {
    auto lane = model_->NewLane(threads, rows_max_);
    EXPECT_TRUE(lane.ok()) << lane.status();
    return lane.ok() ? *lane : nullptr;
  }

  const int64_t rows_max_;
  TemporaryDirectory directory_;
  std::unique_ptr<Model> model_;
  std::shared_ptr<Lane> lane_;
};

struct RangeResult {
  PrefixState state;  // after the range
  std::vector<PrefixState> captures;
  std::vector<float> logits;
};

// One range alone, from `start` (nullptr: zero). Models with attention layers: `latents` holds
// those of the tokens before `first_token` and takes the range's; nullptr: a cache for this call.
// Fails the test on an error.
RangeResult PrefillRange(Model& model, Lane& lane, const std::vector<uint32_t>& tokens,
                         const std::vector<int64_t>& captures, const PrefixState* start,
                         LatentCache* latents = nullptr, int64_t first_token = 0);

LatentCache NewLatents(const Model& model);
// Rows [first, first + count) of an attention layer.
std::vector<float> LatentRows(const LatentCache& latents, uint32_t layer, int64_t first,
                              int64_t count);

std::vector<uint32_t> RandomTokens(const Model& model, int64_t count, uint64_t seed);
// Tokens [begin, end).
std::vector<uint32_t> Slice(const std::vector<uint32_t>& tokens, size_t begin, size_t end);

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_WORKER_MODEL_FIXTURE_H_
