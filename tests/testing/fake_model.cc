#include "tests/testing/fake_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <thread>

#include "worker/model/status_steps.h"

namespace deltafill::test {
namespace {

constexpr uint32_t kHeads = 2;
constexpr uint32_t kValueDim = 2;
constexpr uint32_t kKeyDim = 4;
constexpr uint32_t kStateValues = kHeads * kValueDim * kKeyDim;
constexpr uint32_t kChannels = kHeads * (2 * kKeyDim + kValueDim);
constexpr uint64_t kWhole = 0xFFFFFF;
constexpr uint64_t kDecodeFlavour = 77;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t z = a * 0x9E3779B97F4A7C15u + b + 0x632BE59BD9B4E019u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

float* LatentAt(const kernels::LatentSequence& sequence, int64_t token) {
  const int64_t page = token / kernels::kLatentPageTokens;
  return static_cast<float*>(sequence.pages[static_cast<size_t>(page)]) +
         (token % kernels::kLatentPageTokens) * kFakeLatentWidth;
}

class HostBackend : public kernels::Backend {
 public:
  const std::string& numerics() const override { return numerics_; }
  kernels::DType activation_dtype() const override { return kernels::DType::kF32; }
  bool is_host_memory() const override { return true; }
  kernels::Status NewOperators(int, std::unique_ptr<kernels::Operators>*) override {
    return {kernels::StatusCode::kUnsupported, "the fake backend has no operators"};
  }
  kernels::Status Allocate(size_t bytes, void** out) override {
    *out = ::operator new(std::max<size_t>(bytes, 1), std::align_val_t(64));
    std::memset(*out, 0xAB, bytes);  // nobody may count on zeros
    return {};
  }
  void Free(void* buffer) override { ::operator delete(buffer, std::align_val_t(64)); }
  kernels::Status NewWeight(const void*, kernels::DType, int64_t, int64_t,
                            std::unique_ptr<kernels::Weight>*) override {
    return {kernels::StatusCode::kUnsupported, "the fake backend has no weights"};
  }
  kernels::Status NewLatentProjection(const void*, kernels::DType, const kernels::LatentShape&,
                                      std::unique_ptr<kernels::LatentProjection>*) override {
    return {kernels::StatusCode::kUnsupported, "the fake model has no weights"};
  }

 private:
  const std::string numerics_ = "fake/block64/v1";
};

}  // namespace

struct FakeModel::FakeLane {
  int64_t rows_max = 0;
  std::atomic<bool> busy{false};
  std::vector<uint64_t> last_rows;
};

// One layer's boundary state, read and written in place.
struct FakeModel::LayerState {
  float* recurrent;  // [kStateValues]
  float* tail;       // [kChannels, 3], oldest first
};

FakeModel::FakeModel(FakeModelOptions options)
    : options_(std::move(options)), backend_(std::make_unique<HostBackend>()) {
  config_.model_type = "fake";
  config_.vocab_size = options_.vocabulary;
  config_.layers.resize(options_.layers);
  config_.eos_ids = {2};
  fingerprint_.bytes.fill(static_cast<uint8_t>(options_.layers));
  const auto add = [this](uint32_t layer, PartKind kind, std::array<uint32_t, 4> shape) {
    StateEntry entry{layer, kind, PartDType::kF32, shape, layout_.bytes, 0};
    entry.bytes = sizeof(float) * shape[0] * shape[1] * shape[2] * shape[3];
    layout_.entries.push_back(entry);
    layout_.bytes += (entry.bytes + 63) / 64 * 64;
  };
  for (uint32_t layer = 0; layer < options_.layers; ++layer) {
    if (!IsAttention(layer)) add(layer, PartKind::kRecurrent, {kHeads, kValueDim, kKeyDim, 1});
  }
  for (uint32_t layer = 0; layer < options_.layers; ++layer) {
    if (!IsAttention(layer)) add(layer, PartKind::kConvTail, {kChannels, 3, 1, 1});
  }
  layout_.latents = {options_.attention_layers, kFakeLatentWidth, PartDType::kF32};
}

FakeModel::~FakeModel() = default;

FakeModel::FakeLane& FakeModel::Cast(Lane& lane) { return reinterpret_cast<FakeLane&>(lane); }

absl::StatusOr<std::shared_ptr<Lane>> FakeModel::NewLane(int, int64_t rows_max) {
  auto lane = std::make_shared<FakeLane>();
  lane->rows_max = rows_max;
  return std::shared_ptr<Lane>(lane, reinterpret_cast<Lane*>(lane.get()));
}

// Rows are the layer's inputs and become its outputs. Every value of the state depends on all
// tokens before; every output on its row and the state.
void FakeModel::RunTokens(const LayerState& state, std::span<uint64_t> rows, uint32_t layer,
                          uint64_t flavour) const {
  for (uint64_t& row : rows) {
    uint64_t sum = Mix(row, layer);
    for (uint32_t i = 0; i < kStateValues; ++i) {
      const uint64_t before = static_cast<uint64_t>(state.recurrent[i]);
      const uint64_t after = Mix(Mix(row, before), i + flavour) & kWhole;
      state.recurrent[i] = static_cast<float>(after);
      sum = Mix(sum, after);
    }
    for (uint32_t channel = 0; channel < kChannels; ++channel) {
      float* tail = state.tail + 3 * channel;
      sum = Mix(sum, static_cast<uint64_t>(tail[0]));
      tail[0] = tail[1];
      tail[1] = tail[2];
      tail[2] = static_cast<float>(Mix(row, channel) & kWhole);
    }
    row = sum;
  }
}

bool FakeModel::IsAttention(uint32_t layer) const {
  return std::binary_search(options_.attention_layers.begin(), options_.attention_layers.end(),
                            layer);
}

void FakeModel::WriteLatents(std::span<const uint64_t> rows, uint32_t layer, uint64_t flavour,
                             const kernels::LatentSequence& sequence) {
  for (size_t i = 0; i < rows.size(); ++i) {
    float* latent = LatentAt(sequence, sequence.first_token + static_cast<int64_t>(i));
    for (uint32_t j = 0; j < kFakeLatentWidth; ++j) {
      latent[j] = static_cast<float>(Mix(rows[i], 100 * layer + j + flavour) & kWhole);
    }
  }
}

// Each row's output depends on every latent up to its own, in order.
void FakeModel::Attend(std::span<uint64_t> rows, const kernels::LatentSequence& sequence) {
  uint64_t sum = 1;
  const int64_t end = sequence.first_token + static_cast<int64_t>(rows.size());
  for (int64_t token = 0; token < end; ++token) {
    const float* latent = LatentAt(sequence, token);
    for (uint32_t j = 0; j < kFakeLatentWidth; ++j) {
      sum = Mix(sum, std::bit_cast<uint32_t>(latent[j]));
    }
    if (token < sequence.first_token) continue;
    uint64_t& row = rows[static_cast<size_t>(token - sequence.first_token)];
    row = Mix(row, sum);
  }
}

absl::Status FakeModel::RunAttention(const RangeWork& range, std::span<uint64_t> rows,
                                     uint32_t layer) const {
  DELTAFILL_TRY_ASSIGN(sequence, range.port->Latents(layer));
  WriteLatents(rows, layer, 0, sequence);
  if (options_.poison_token.has_value() && layer == 1) {
    const auto poison = std::find(range.tokens.begin(), range.tokens.end(), *options_.poison_token);
    if (poison != range.tokens.end()) {
      LatentAt(sequence, sequence.first_token + (poison - range.tokens.begin()))[1] =
          std::numeric_limits<float>::quiet_NaN();
    }
  }
  DELTAFILL_TRY(range.port->ShareLatents(layer));
  Attend(rows, sequence);
  return absl::OkStatus();
}

absl::Status FakeModel::RunTask(const RangeWork& range, std::span<uint64_t> rows,
                                uint32_t layer) const {
  if (IsAttention(layer)) return RunAttention(range, rows, layer);
  const StateEntry& recurrent = *layout_.Find(layer, PartKind::kRecurrent);
  const StateEntry& tail = *layout_.Find(layer, PartKind::kConvTail);
  std::vector<float> values(kStateValues), tails(3 * kChannels);
  DELTAFILL_TRY_ASSIGN(tail_in, range.port->Await(layer, PartKind::kConvTail));
  DELTAFILL_TRY_ASSIGN(recurrent_in, range.port->Await(layer, PartKind::kRecurrent));
  if (tail_in != nullptr) std::memcpy(tails.data(), tail_in, tail.bytes);
  if (recurrent_in != nullptr) std::memcpy(values.data(), recurrent_in, recurrent.bytes);
  const LayerState state{values.data(), tails.data()};

  size_t done = 0;
  for (size_t i = 0; i <= range.captures.size(); ++i) {
    const size_t end =
        i < range.captures.size() ? static_cast<size_t>(range.captures[i]) : rows.size();
    RunTokens(state, rows.subspan(done, end - done), layer, 0);
    done = end;
    const bool poisoned =
        options_.poison_token.has_value() && layer == 1 &&
        std::count(range.tokens.begin(), range.tokens.begin() + end, *options_.poison_token) > 0;
    std::vector<float> seen = values;
    if (poisoned) seen[kStateValues - 1] = std::numeric_limits<float>::quiet_NaN();
    if (i < range.captures.size()) {
      const int capture = static_cast<int>(i);
      std::memcpy(range.port->Capture(capture, layer, PartKind::kRecurrent), seen.data(),
                  recurrent.bytes);
      std::memcpy(range.port->Capture(capture, layer, PartKind::kConvTail), tails.data(),
                  tail.bytes);
    }
  }
  if (void* out = range.port->Outgoing(layer, PartKind::kConvTail)) {
    std::memcpy(out, tails.data(), tail.bytes);
    DELTAFILL_TRY(range.port->HandOn(layer, PartKind::kConvTail));
  }
  if (void* out = range.port->Outgoing(layer, PartKind::kRecurrent)) {
    std::memcpy(out, values.data(), recurrent.bytes);
    DELTAFILL_TRY(range.port->HandOn(layer, PartKind::kRecurrent));
  }
  return absl::OkStatus();
}

absl::Status FakeModel::Prefill(Lane& lane, std::span<const RangeWork> ranges) {
  FakeLane& fake = Cast(lane);
  if (fake.busy.exchange(true)) return absl::InternalError("fake lane used twice at once");
  struct Leave {
    FakeLane& lane;
    ~Leave() { lane.busy.store(false); }
  } leave{fake};
  size_t row_count = 0;
  std::vector<std::vector<uint64_t>> rows;
  for (const RangeWork& range : ranges) {
    row_count += range.tokens.size();
    rows.emplace_back();
    for (uint32_t token : range.tokens) rows.back().push_back(Mix(token, 0));
  }
  if (row_count == 0 || row_count > static_cast<size_t>(fake.rows_max)) {
    return absl::InternalError("fake lane used beyond its size");
  }
  for (uint32_t layer = 0; layer < options_.layers; ++layer) {
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (options_.on_task) options_.on_task(layer);
      tasks_run_.fetch_add(1);
      DELTAFILL_TRY(RunTask(ranges[i], rows[i], layer));
      if (options_.layer_delay.count() > 0) std::this_thread::sleep_for(options_.layer_delay);
      DELTAFILL_TRY(ranges[i].port->TaskDone(layer));
    }
  }
  fake.last_rows.clear();
  for (const std::vector<uint64_t>& sequence : rows) fake.last_rows.push_back(sequence.back());
  return absl::OkStatus();
}

void FakeModel::Logits(uint64_t row, std::span<float> logits) const {
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(Mix(row, i) & 0xFFFF) / 8192.0f;
  }
}

absl::Status FakeModel::LastLogits(Lane& lane, std::span<float> logits) {
  FakeLane& fake = Cast(lane);
  if (logits.size() != fake.last_rows.size() * options_.vocabulary) {
    return absl::InternalError("fake logits: wrong size");
  }
  for (size_t i = 0; i < fake.last_rows.size(); ++i) {
    Logits(fake.last_rows[i], logits.subspan(i * options_.vocabulary, options_.vocabulary));
  }
  return absl::OkStatus();
}

absl::Status FakeModel::DecodeStep(Lane& lane, std::span<const DecodeRow> rows,
                                   std::span<float> logits) {
  if (Cast(lane).busy.exchange(true)) return absl::InternalError("fake lane used twice at once");
  const int batch = static_cast<int>(rows.size());
  decode_batch_largest_.store(std::max(decode_batch_largest_.load(), batch));
  if (options_.layer_delay.count() > 0) std::this_thread::sleep_for(options_.layer_delay);
  for (size_t i = 0; i < rows.size(); ++i) {
    uint64_t row = Mix(rows[i].token, 0);
    std::byte* bytes = static_cast<std::byte*>(rows[i].state);
    for (uint32_t layer = 0; layer < options_.layers; ++layer) {
      if (IsAttention(layer)) {
        const kernels::LatentSequence sequence{rows[i].latents->Pages(layer),
                                               static_cast<int64_t>(rows[i].position)};
        WriteLatents({&row, 1}, layer, kDecodeFlavour, sequence);
        Attend({&row, 1}, sequence);
        continue;
      }
      const LayerState state{
          reinterpret_cast<float*>(bytes + layout_.Find(layer, PartKind::kRecurrent)->offset),
          reinterpret_cast<float*>(bytes + layout_.Find(layer, PartKind::kConvTail)->offset)};
      RunTokens(state, {&row, 1}, layer, kDecodeFlavour);
    }
    Logits(row, logits.subspan(i * options_.vocabulary, options_.vocabulary));
    if (options_.poison_token == rows[i].token) {
      logits[i * options_.vocabulary] = std::numeric_limits<float>::infinity();
    }
  }
  Cast(lane).busy.store(false);
  return absl::OkStatus();
}

FakeModel::Reference FakeModel::Run(std::span<const uint32_t> tokens) const {
  Reference reference;
  reference.state.resize(layout_.bytes);
  std::vector<uint64_t> rows;
  for (uint32_t token : tokens) rows.push_back(Mix(token, 0));
  LatentCache cache(backend_.get(), &layout_.latents);
  (void)cache.Reserve(static_cast<int64_t>(tokens.size()));
  for (uint32_t layer = 0; layer < options_.layers; ++layer) {
    if (IsAttention(layer)) {
      const kernels::LatentSequence sequence{cache.Pages(layer), 0};
      WriteLatents(rows, layer, 0, sequence);
      Attend(rows, sequence);
      std::vector<float>& latents = reference.latents.emplace_back();
      for (size_t token = 0; token < tokens.size(); ++token) {
        const float* latent = LatentAt(sequence, static_cast<int64_t>(token));
        latents.insert(latents.end(), latent, latent + kFakeLatentWidth);
      }
      continue;
    }
    std::byte* bytes = reference.state.data();
    RunTokens({reinterpret_cast<float*>(bytes + layout_.Find(layer, PartKind::kRecurrent)->offset),
               reinterpret_cast<float*>(bytes + layout_.Find(layer, PartKind::kConvTail)->offset)},
              rows, layer, 0);
  }
  reference.logits.resize(options_.vocabulary);
  Logits(rows.back(), reference.logits);
  return reference;
}

}  // namespace deltafill::test
