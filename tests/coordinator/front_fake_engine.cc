#include "tests/coordinator/front_fake_engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "absl/status/status.h"

namespace deltafill::coordinator {
namespace {

constexpr uint32_t kLayers[] = {0, 2};

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u ^ (b + 0xD1B54A32D192ED03u);
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  return x ^ x >> 32;
}

std::vector<std::byte> RecurrentBytes(uint64_t state, uint32_t layer) {
  std::vector<std::byte> bytes(kHeads * kValueDim * kKeyDim * sizeof(float));
  for (uint32_t i = 0; i < bytes.size() / sizeof(float); ++i) {
    const float value = RecurrentValue(state, layer, i);
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(value));
  }
  return bytes;
}

std::vector<std::byte> ConvBytes(uint64_t state, uint32_t layer) {
  std::vector<std::byte> bytes(kConvChannels * 3 * sizeof(uint16_t));
  for (uint32_t i = 0; i < bytes.size() / sizeof(uint16_t); ++i) {
    const uint16_t value = ConvValue(state, layer, i);
    std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
  }
  return bytes;
}

PartHeader RecurrentHeader(uint64_t boundary) {
  return {PartKind::kRecurrent, PartDType::kF32, {0, 2}, {kHeads, kValueDim, kKeyDim, 1}, boundary};
}

PartHeader ConvHeader(uint64_t boundary) {
  return {PartKind::kConvTail, PartDType::kBF16, {0, 2}, {kConvChannels, 3, 1, 1}, boundary};
}

}  // namespace

uint64_t HashTokens(uint64_t state, std::span<const uint32_t> tokens) {
  for (uint32_t token : tokens) state = Mix(state, token);
  return state;
}

// The state's own bits come first, as two halves that survive being floats; the rest follows from
// them.
float RecurrentValue(uint64_t state, uint32_t layer, uint32_t index) {
  if (layer == 0 && index < 4) return static_cast<float>(state >> (16 * index) & 0xFFFF);
  return static_cast<float>(Mix(state, layer * 1000 + index) >> 44);
}

uint16_t ConvValue(uint64_t state, uint32_t layer, uint32_t index) {
  return static_cast<uint16_t>(Mix(state, 500 + layer * 1000 + index) >> 48);
}

std::string LogitsOf(uint64_t state) {
  std::string bytes;
  for (uint32_t i = 0; i < kVocabulary; ++i) {
    const float value = static_cast<float>(Mix(state, 9000 + i) >> 44);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

uint32_t NextToken(uint64_t state) { return static_cast<uint32_t>(Mix(state, 77) % 256); }

ServedModel FakeModel(const std::string& name, uint8_t fingerprint, const std::string& numerics) {
  ServedModel model;
  model.name = name;
  model.fingerprint.bytes.fill(fingerprint);
  model.numerics = numerics;
  model.vocabulary = kVocabulary;
  model.layers = 3;
  model.state_bytes = 1000;
  model.eos_ids = {257};
  model.tokenizer_kind = "bytes";
  model.tokenizer_file =
      std::make_shared<const std::string>(R"({"kind": "bytes", "special_tokens": {"<eos>": 257}})");
  model.state_parts = {RecurrentHeader(0), ConvHeader(0)};
  return model;
}

FakeEngine::~FakeEngine() {
  hold = false;
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

absl::StatusOr<PromptNumber> FakeEngine::Start(std::shared_ptr<PromptObserver> observer,
                                               Work work) {
  std::unique_lock lock(mutex_);
  if (const std::function<absl::Status()> hook = on_submit_) {
    lock.unlock();  // it may use the store
    if (absl::Status status = hook(); !status.ok()) return status;
    lock.lock();
  }
  const PromptNumber number = ++last_;
  ++running_;
  threads_.emplace_back([this, number, observer = std::move(observer), work = std::move(work)] {
    WorkTimings timings;
    const absl::Status status = work(number, *observer, &timings);
    --running_;
    observer->OnFinished(status, timings, status.ok() ? "length" : "");
  });
  return number;
}

void FakeEngine::Cancel(PromptNumber prompt) {
  ++cancels;
  const std::lock_guard lock(mutex_);
  cancelled_.insert(prompt);
}

bool FakeEngine::IsCancelled(PromptNumber prompt) const {
  const std::lock_guard lock(mutex_);
  return cancelled_.contains(prompt);
}

std::vector<ServedModel> FakeEngine::Models() const {
  const std::lock_guard lock(mutex_);
  return models_;
}

std::vector<AttachedWorker> FakeEngine::Workers() const {
  AttachedWorker worker;
  worker.name = "worker-0";
  worker.device = "fake";
  return {worker};
}

std::vector<PrefillWork> FakeEngine::prefills() const {
  const std::lock_guard lock(mutex_);
  return prefills_;
}

std::vector<DecodeWork> FakeEngine::decodes() const {
  const std::lock_guard lock(mutex_);
  return decodes_;
}

absl::StatusOr<uint64_t> FakeEngine::ReadStart(const StartState& start) const {
  if (start.boundary == 0) return 0;
  for (const PartRef& ref : start.parts) {
    absl::StatusOr<Part> part = store_.GetPart(ref.id, {});
    if (absl::IsNotFound(part.status())) return absl::DataLossError(part.status().message());
    if (!part.ok()) return FromWorker(part.status());
    if (part->header.kind != PartKind::kRecurrent) continue;
    uint64_t state = 0;
    for (int i = 0; i < 4; ++i) {
      float piece;
      std::memcpy(&piece, part->payload.data() + i * sizeof(float), sizeof(float));
      state |= static_cast<uint64_t>(piece) << (16 * i);
    }
    return state;
  }
  return absl::InternalError("no recurrent part");
}

absl::StatusOr<std::vector<PartReceipt>> FakeEngine::PutParts(const std::string& tenant,
                                                              uint64_t state, uint64_t boundary,
                                                              bool logits) const {
  state ^= scramble;
  std::vector<std::vector<std::byte>> recurrent, conv;
  std::vector<std::span<const std::byte>> recurrent_views, conv_views;
  for (uint32_t layer : kLayers) {
    recurrent.push_back(RecurrentBytes(state, layer));
    conv.push_back(ConvBytes(state, layer));
  }
  for (const auto& bytes : recurrent) recurrent_views.emplace_back(bytes);
  for (const auto& bytes : conv) conv_views.emplace_back(bytes);
  std::vector<PartReceipt> receipts;
  for (const auto& [header, views] : {std::pair(RecurrentHeader(boundary), recurrent_views),
                                      std::pair(ConvHeader(boundary), conv_views)}) {
    absl::StatusOr<PartReceipt> receipt = store_.PutPart(tenant, header, views);
    if (!receipt.ok()) return receipt.status();
    receipts.push_back(*receipt);
  }
  if (!logits) return receipts;
  const std::string values = LogitsOf(state);
  const std::span<const std::byte> view = std::as_bytes(std::span(values));
  PartHeader header{PartKind::kLogits, PartDType::kF32, {0}, {kVocabulary, 1, 1, 1}, boundary};
  absl::StatusOr<PartReceipt> receipt = store_.PutPart(tenant, header, std::span(&view, 1));
  if (!receipt.ok()) return receipt.status();
  receipts.push_back(*receipt);
  return receipts;
}

absl::StatusOr<PromptNumber> FakeEngine::SubmitPrefill(PrefillWork work,
                                                       std::shared_ptr<PromptObserver> observer) {
  {
    const std::lock_guard lock(mutex_);
    prefills_.push_back(work);
  }
  return Start(std::move(observer),
               [this, work](PromptNumber number, PromptObserver& to, WorkTimings* timings) {
                 return RunPrefill(work, number, to, timings);
               });
}

absl::Status FakeEngine::RunPrefill(const PrefillWork& work, PromptNumber number,
                                    PromptObserver& observer, WorkTimings* timings) {
  absl::StatusOr<uint64_t> state = ReadStart(work.start);
  if (!state.ok()) return state.status();
  std::function<absl::Status(uint64_t)> on_block;
  {
    const std::lock_guard lock(mutex_);
    on_block = on_block_;
  }
  PlanSummary plan;
  plan.schedule = "wavefront";
  plan.workers = 1;
  observer.OnPlanned(plan, 1);
  const std::span<const uint32_t> tokens(*work.tokens);
  uint64_t at = work.start.boundary;
  while (at < work.end()) {
    const uint64_t end = std::min<uint64_t>(work.end(), at + kBlockTokenCount);
    while (hold && end == work.end() && !IsCancelled(number)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (IsCancelled(number)) return absl::CancelledError("cancelled");
    if (on_block) {
      if (absl::Status status = on_block(end); !status.ok()) return status;
    }
    *state = HashTokens(*state, tokens.subspan(at - work.tokens_begin, end - at));
    timings->tokens_computed += end - at;
    at = end;
    if (std::binary_search(work.boundaries.begin(), work.boundaries.end(), at)) {
      absl::StatusOr<std::vector<PartReceipt>> parts = PutParts(work.tenant, *state, at, false);
      if (!parts.ok()) return parts.status();
      observer.OnBoundaryStored({at, *parts});
    }
    observer.OnProgress(at, 1);
  }
  if (work.last_logits) observer.OnLogits(LogitsOf(*state));
  return absl::OkStatus();
}

absl::StatusOr<PromptNumber> FakeEngine::SubmitDecode(DecodeWork work,
                                                      std::shared_ptr<PromptObserver> observer) {
  {
    const std::lock_guard lock(mutex_);
    decodes_.push_back(work);
  }
  return Start(std::move(observer),
               [this, work](PromptNumber number, PromptObserver& to, WorkTimings* timings) {
                 timings->tokens_computed = work.tokens.size();
                 return RunDecode(work, number, to);
               });
}

absl::Status FakeEngine::RunDecode(const DecodeWork& work, PromptNumber number,
                                   PromptObserver& observer) {
  absl::StatusOr<uint64_t> start = ReadStart(work.start);
  if (!start.ok()) return start.status();
  std::vector<uint32_t> tokens = work.tokens;
  uint64_t state = HashTokens(*start, tokens);
  observer.OnDecodeReady();
  for (uint32_t i = 0; i < work.max_tokens; ++i) {
    while (hold && i + 1 == work.max_tokens && !IsCancelled(number)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (IsCancelled(number)) return absl::CancelledError("cancelled");
    const uint32_t id = NextToken(state);
    observer.OnDecodeToken(id);
    tokens.push_back(id);
    state = HashTokens(state, std::span(&id, 1));
    if (std::count(work.stop_ids.begin(), work.stop_ids.end(), id) > 0) break;
  }
  if (!work.save_state || omit_saved) return absl::OkStatus();
  const uint64_t total = work.start.boundary + tokens.size();
  const uint64_t boundary = (total - 1) / kBlockTokenCount * kBlockTokenCount;
  if (boundary == work.start.boundary) return absl::OkStatus();
  const uint64_t saved =
      HashTokens(*start, std::span(tokens).first(boundary - work.start.boundary));
  absl::StatusOr<std::vector<PartReceipt>> parts = PutParts(work.tenant, saved, boundary, false);
  if (!parts.ok()) return parts.status();
  observer.OnBoundaryStored({boundary, *parts});
  return absl::OkStatus();
}

absl::StatusOr<PromptNumber> FakeEngine::SubmitExport(ExportWork work,
                                                      std::shared_ptr<PromptObserver> observer) {
  return Start(std::move(observer), [this, work](PromptNumber, PromptObserver& to, WorkTimings*) {
    absl::StatusOr<uint64_t> start = ReadStart(work.start);
    if (!start.ok()) return start.status();
    absl::StatusOr<std::vector<PartReceipt>> parts =
        PutParts(work.tenant, HashTokens(*start, work.tokens),
                 work.start.boundary + work.tokens.size(), true);
    if (!parts.ok()) return parts.status();
    to.OnExported(*parts);
    return absl::OkStatus();
  });
}

}  // namespace deltafill::coordinator
