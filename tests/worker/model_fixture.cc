#include "tests/worker/model_fixture.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/testing/random.h"

namespace deltafill::test {

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "deltafill-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "mkdtemp " << pattern;
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code error;
  std::filesystem::permissions(path_, std::filesystem::perms::owner_all, error);
  std::filesystem::remove_all(path_, error);
}

void WriteFile(const std::string& path, const std::string& contents) {
  std::ofstream file(path, std::ios::binary);
  file << contents;
  ASSERT_TRUE(file.good()) << path;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream contents;
  contents << file.rdbuf();
  return contents.str();
}

std::string FixturePath(const std::string& name) {
  return std::string(DELTAFILL_WORKER_FIXTURES) + "/" + name;
}

void CopyFixture(const std::string& name, const std::string& to) {
  std::filesystem::copy(FixturePath(name), to, std::filesystem::copy_options::recursive);
}

std::shared_ptr<kernels::Backend> MakeCpuBackend() {
  std::unique_ptr<kernels::Backend> backend;
  const kernels::Status status = kernels::NewCpuBackend({}, &backend);
  EXPECT_TRUE(status.ok()) << status.message();
  return backend;
}

std::unique_ptr<Model> LoadOrFail(const std::string& directory) {
  auto model = LoadModel(directory, MakeCpuBackend());
  if (!model.ok()) {
    ADD_FAILURE() << model.status();
    return nullptr;
  }
  return std::move(*model);
}

PrefixState ZeroState(const Model& model) { return PrefixState(model.state_layout().bytes); }

MemoryPort::MemoryPort(const StateLayout& layout, const PrefixState* start, size_t captures)
    : layout_(layout), start_(start), outgoing_(layout.bytes) {
  captures_.resize(captures, PrefixState(layout.bytes));
}

std::byte* MemoryPort::Place(PrefixState& state, uint32_t layer, PartKind kind) {
  const StateEntry* entry = layout_.Find(layer, kind);
  return entry == nullptr ? nullptr : state.data() + entry->offset;
}

void MemoryPort::Record(const char* call, uint32_t layer, PartKind kind) {
  calls_.push_back(
      absl::StrCat(call, " ", layer, kind == PartKind::kConvTail ? " tail" : " state"));
}

absl::StatusOr<const void*> MemoryPort::Await(uint32_t layer, PartKind kind) {
  Record("await", layer, kind);
  if (layer == cancel_layer_) return absl::CancelledError("the attempt was aborted");
  if (start_ == nullptr) return nullptr;
  return start_->data() + layout_.Find(layer, kind)->offset;
}

void* MemoryPort::Outgoing(uint32_t layer, PartKind kind) {
  return outgoing_wanted_ ? Place(outgoing_, layer, kind) : nullptr;
}

absl::Status MemoryPort::HandOn(uint32_t layer, PartKind kind) {
  Record("hand on", layer, kind);
  return absl::OkStatus();
}

void* MemoryPort::Capture(int capture, uint32_t layer, PartKind kind) {
  return Place(captures_[static_cast<size_t>(capture)], layer, kind);
}

absl::StatusOr<kernels::LatentSequence> MemoryPort::Latents(uint32_t layer) {
  if (latents_ == nullptr) return absl::FailedPreconditionError("the port has no latent cache");
  return kernels::LatentSequence{latents_->Pages(layer), first_token_};
}

absl::Status MemoryPort::ShareLatents(uint32_t layer) {
  calls_.push_back(absl::StrCat("share ", layer));
  return absl::OkStatus();
}

absl::Status MemoryPort::TaskDone(uint32_t layer) {
  calls_.push_back(absl::StrCat("done ", layer));
  return absl::OkStatus();
}

LatentCache NewLatents(const Model& model) {
  return {&model.backend(), &model.state_layout().latents};
}

std::vector<float> LatentRows(const LatentCache& latents, uint32_t layer, int64_t first,
                              int64_t count) {
  const size_t width = latents.layout().width;
  std::vector<float> rows;
  for (int64_t token = first; token < first + count; ++token) {
    const void* const page =
        latents.Pages(layer)[static_cast<size_t>(token / kernels::kLatentPageTokens)];
    const float* const row = static_cast<const float*>(page) +
                             static_cast<size_t>(token % kernels::kLatentPageTokens) * width;
    rows.insert(rows.end(), row, row + width);
  }
  return rows;
}

RangeResult PrefillRange(Model& model, Lane& lane, const std::vector<uint32_t>& tokens,
                         const std::vector<int64_t>& captures, const PrefixState* start,
                         LatentCache* latents, int64_t first_token) {
  MemoryPort port(model.state_layout(), start, captures.size());
  LatentCache own = NewLatents(model);
  if (latents == nullptr) latents = &own;
  if (!model.state_layout().latents.layers.empty()) {
    const absl::Status room = latents->Reserve(first_token + static_cast<int64_t>(tokens.size()));
    EXPECT_TRUE(room.ok()) << room;
    port.use_latents(latents, first_token);
  }
  const RangeWork range{.tokens = tokens, .captures = captures, .port = &port};
  RangeResult result;
  absl::Status status = model.Prefill(lane, {&range, 1});
  EXPECT_TRUE(status.ok()) << status;
  result.logits.resize(static_cast<size_t>(model.config().vocab_size));
  status = model.LastLogits(lane, result.logits);
  EXPECT_TRUE(status.ok()) << status;
  result.state = port.outgoing();
  result.captures = port.captures();
  return result;
}

std::vector<uint32_t> RandomTokens(const Model& model, int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<uint32_t> tokens(static_cast<size_t>(count));
  for (uint32_t& token : tokens) {
    token = static_cast<uint32_t>(random.Integer(0, model.config().vocab_size - 1));
  }
  return tokens;
}

std::vector<uint32_t> Slice(const std::vector<uint32_t>& tokens, size_t begin, size_t end) {
  return {tokens.begin() + static_cast<int64_t>(begin), tokens.begin() + static_cast<int64_t>(end)};
}

}  // namespace deltafill::test
