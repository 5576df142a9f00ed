#include "tests/testing/fake_model.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "worker/model/lane.h"
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
  return static_cast<float*>(BehindAddress(sequence.pages[static_cast<size_t>(page)])) +
         (token % kernels::kLatentPageTokens) * kFakeLatentWidth;
}

class HostBackend : public kernels::Backend {
 public:
  HostBackend() {
    if (!kernels::NewCpuBackend({}, &cpu_).ok()) std::abort();
  }
  const std::string& numerics() const override { return numerics_; }
  kernels::DType activation_dtype() const override { return kernels::DType::kF32; }
  bool is_host_memory() const override { return true; }
  kernels::Status NewOperators(int, std::unique_ptr<kernels::Operators>* out) override {
    return cpu_->NewOperators(1, out);
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
  std::unique_ptr<kernels::Backend> cpu_;
};

}  // namespace

struct FakeModel::FakeLane {
  int64_t rows_max = 0;
  std::atomic<bool> busy{false};
  std::vector<Rows> last_rows;
};

// One layer's boundary state, read and written in place.
struct FakeModel::LayerState {
  float* recurrent;  // [kStateValues]
  float* tail;       // [kChannels, 3], oldest first
};

FakeModel::FakeModel(FakeModelOptions options)
    : options_(std::move(options)), host_backend_(std::make_unique<HostBackend>()) {
  if (options_.on_device) {
    backend_ = NewFakeDevice();
  } else {
    backend_ = std::make_unique<HostBackend>();
  }
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

FakeModel::FakeLane& FakeModel::Of(Lane& lane) {
  std::lock_guard lock(mutex_);
  return *lanes_.at(&lane);
}

absl::StatusOr<std::shared_ptr<Lane>> FakeModel::NewLane(int threads, int64_t rows_max) {
  DELTAFILL_TRY_ASSIGN(lane, Lane::Create(*backend_, threads, {rows_max, 1, 1, 1}));
  auto fake = std::make_unique<FakeLane>();
  fake->rows_max = rows_max;
  std::lock_guard lock(mutex_);
  lanes_[lane.get()] = std::move(fake);
  return lane;
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

absl::Status FakeModel::RunAttention(kernels::Operators& lane, const RangeWork& range,
                                     const Rows& rows, uint32_t layer) const {
  DELTAFILL_TRY_ASSIGN(sequence, range.port->Latents(layer));
  const std::vector<void*> pages(sequence.pages.begin(), sequence.pages.end());
  const int64_t first_token = sequence.first_token;
  std::optional<int64_t> poisoned;
  if (options_.poison_token.has_value() && layer == 1) {
    const auto poison = std::find(range.tokens.begin(), range.tokens.end(), *options_.poison_token);
    if (poison != range.tokens.end()) poisoned = first_token + (poison - range.tokens.begin());
  }
  IssueOnLane(lane, [=] {
    const kernels::LatentSequence written{pages, first_token};
    WriteLatents(*rows, layer, 0, written);
    if (poisoned.has_value()) {
      LatentAt(written, *poisoned)[1] = std::numeric_limits<float>::quiet_NaN();
    }
  });
  DELTAFILL_TRY(range.port->ShareLatents(layer));
  IssueOnLane(lane, [=] { Attend(*rows, {pages, first_token}); });
  return absl::OkStatus();
}

struct FakeModel::TaskStates {
  struct Place {
    void* recurrent = nullptr;
    void* tail = nullptr;
  };
  const void* recurrent_in = nullptr;
  const void* tail_in = nullptr;
  std::vector<std::pair<int64_t, Place>> captures;  // tokens, where
  Place outgoing;
};

void FakeModel::RunRecurrence(const TaskStates& states, std::span<const uint32_t> tokens,
                              std::span<uint64_t> rows, uint32_t layer) const {
  std::vector<float> values(kStateValues), tails(3 * kChannels);
  const size_t value_bytes = values.size() * sizeof(float);
  const size_t tail_bytes = tails.size() * sizeof(float);
  if (states.tail_in != nullptr) {
    std::memcpy(tails.data(), BehindAddress(states.tail_in), tail_bytes);
  }
  if (states.recurrent_in != nullptr) {
    std::memcpy(values.data(), BehindAddress(states.recurrent_in), value_bytes);
  }
  const LayerState state{values.data(), tails.data()};
  size_t done = 0;
  for (const auto& [capture_tokens, place] : states.captures) {
    const size_t end = static_cast<size_t>(capture_tokens);
    RunTokens(state, rows.subspan(done, end - done), layer, 0);
    done = end;
    std::vector<float> seen = values;
    if (options_.poison_token.has_value() && layer == 1 &&
        std::count(tokens.begin(), tokens.begin() + capture_tokens, *options_.poison_token) > 0) {
      seen[kStateValues - 1] = std::numeric_limits<float>::quiet_NaN();
    }
    std::memcpy(BehindAddress(place.recurrent), seen.data(), value_bytes);
    std::memcpy(BehindAddress(place.tail), tails.data(), tail_bytes);
  }
  RunTokens(state, rows.subspan(done), layer, 0);
  if (states.outgoing.tail != nullptr) {
    std::memcpy(BehindAddress(states.outgoing.tail), tails.data(), tail_bytes);
  }
  if (states.outgoing.recurrent != nullptr) {
    std::memcpy(BehindAddress(states.outgoing.recurrent), values.data(), value_bytes);
  }
}

absl::Status FakeModel::RunTask(kernels::Operators& lane, const RangeWork& range, const Rows& rows,
                                uint32_t layer) const {
  if (IsAttention(layer)) return RunAttention(lane, range, rows, layer);
  BoundaryPort& port = *range.port;
  TaskStates states;
  DELTAFILL_TRY_ASSIGN(tail_in, port.Await(layer, PartKind::kConvTail));
  DELTAFILL_TRY_ASSIGN(recurrent_in, port.Await(layer, PartKind::kRecurrent));
  states.tail_in = tail_in;
  states.recurrent_in = recurrent_in;
  for (size_t i = 0; i < range.captures.size(); ++i) {
    const int capture = static_cast<int>(i);
    states.captures.push_back({range.captures[i],
                               {port.Capture(capture, layer, PartKind::kRecurrent),
                                port.Capture(capture, layer, PartKind::kConvTail)}});
  }
  states.outgoing = {port.Outgoing(layer, PartKind::kRecurrent),
                     port.Outgoing(layer, PartKind::kConvTail)};
  IssueOnLane(lane, [this, states, rows, layer,
                     tokens = std::vector<uint32_t>(range.tokens.begin(), range.tokens.end())] {
    RunRecurrence(states, tokens, *rows, layer);
  });
  if (states.outgoing.tail != nullptr) DELTAFILL_TRY(port.HandOn(layer, PartKind::kConvTail));
  if (states.outgoing.recurrent != nullptr) DELTAFILL_TRY(port.HandOn(layer, PartKind::kRecurrent));
  return absl::OkStatus();
}

absl::Status FakeModel::Prefill(Lane& lane, std::span<const RangeWork> ranges) {
  FakeLane& fake = Of(lane);
  if (fake.busy.exchange(true)) return absl::InternalError("fake lane used twice at once");
  struct Leave {
    FakeLane& lane;
    ~Leave() { lane.busy.store(false); }
  } leave{fake};
  size_t row_count = 0;
  std::vector<Rows> rows;
  for (const RangeWork& range : ranges) {
    row_count += range.tokens.size();
    rows.push_back(std::make_shared<std::vector<uint64_t>>());
    for (uint32_t token : range.tokens) rows.back()->push_back(Mix(token, 0));
  }
  if (row_count == 0 || row_count > static_cast<size_t>(fake.rows_max)) {
    return absl::InternalError("fake lane used beyond its size");
  }
  for (uint32_t layer = 0; layer < options_.layers; ++layer) {
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (options_.on_task) options_.on_task(layer);
      tasks_run_.fetch_add(1);
      DELTAFILL_TRY(RunTask(lane.operators(), ranges[i], rows[i], layer));
      IssueOnLane(lane.operators(), [this] {
        if (options_.layer_delay.count() > 0) std::this_thread::sleep_for(options_.layer_delay);
      });
      DELTAFILL_TRY(ranges[i].port->TaskDone(layer));
    }
  }
  fake.last_rows = std::move(rows);
  return absl::OkStatus();
}

void FakeModel::Logits(uint64_t row, std::span<float> logits) const {
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(Mix(row, i) & 0xFFFF) / 8192.0f;
  }
}

absl::Status FakeModel::LastLogits(Lane& lane, std::span<float> logits) {
  FakeLane& fake = Of(lane);
  if (logits.size() != fake.last_rows.size() * options_.vocabulary) {
    return absl::InternalError("fake logits: wrong size");
  }
  IssueOnLane(lane.operators(), [this, &fake, logits] {
    for (size_t i = 0; i < fake.last_rows.size(); ++i) {
      Logits(fake.last_rows[i]->back(),
             logits.subspan(i * options_.vocabulary, options_.vocabulary));
    }
  });
  return FromOperator(lane.operators().Synchronize());
}

void FakeModel::StepRow(const DecodeRow& row, std::span<float> logits) const {
  uint64_t value = Mix(row.token, 0);
  std::byte* bytes = static_cast<std::byte*>(BehindAddress(row.state));
  for (uint32_t layer = 0; layer < options_.layers; ++layer) {
    if (IsAttention(layer)) {
      const kernels::LatentSequence sequence{row.latents->Pages(layer),
                                             static_cast<int64_t>(row.position)};
      WriteLatents({&value, 1}, layer, kDecodeFlavour, sequence);
      Attend({&value, 1}, sequence);
      continue;
    }
    const LayerState state{
        reinterpret_cast<float*>(bytes + layout_.Find(layer, PartKind::kRecurrent)->offset),
        reinterpret_cast<float*>(bytes + layout_.Find(layer, PartKind::kConvTail)->offset)};
    RunTokens(state, {&value, 1}, layer, kDecodeFlavour);
  }
  Logits(value, logits);
  if (options_.poison_token == row.token) logits[0] = std::numeric_limits<float>::infinity();
}

absl::Status FakeModel::DecodeStep(Lane& lane, std::span<const DecodeRow> rows,
                                   std::span<float> logits) {
  FakeLane& fake = Of(lane);
  if (fake.busy.exchange(true)) return absl::InternalError("fake lane used twice at once");
  const int batch = static_cast<int>(rows.size());
  decode_batch_largest_.store(std::max(decode_batch_largest_.load(), batch));
  IssueOnLane(lane.operators(), [this, rows, logits] {
    if (options_.layer_delay.count() > 0) std::this_thread::sleep_for(options_.layer_delay);
    for (size_t i = 0; i < rows.size(); ++i) {
      StepRow(rows[i], logits.subspan(i * options_.vocabulary, options_.vocabulary));
    }
  });
  fake.busy.store(false);
  return FromOperator(lane.operators().Synchronize());
}

FakeModel::Reference FakeModel::Run(std::span<const uint32_t> tokens) const {
  Reference reference;
  reference.state.resize(layout_.bytes);
  std::vector<uint64_t> rows;
  for (uint32_t token : tokens) rows.push_back(Mix(token, 0));
  LatentCache cache(host_backend_.get(), &layout_.latents);
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
