#include "tests/bench/model_sections.h"

#include <utility>

namespace deltafill::test {
namespace {

double& At(std::array<double, kSectionCount>& values, Section section) {
  return values[static_cast<size_t>(section)];
}

Section SectionOf(worker::MixerKind kind) {
  return kind == worker::MixerKind::kKda ? Section::kKda : Section::kLatentAttention;
}

Section SectionOf(worker::MlpKind kind) {
  return kind == worker::MlpKind::kDense ? Section::kDenseMlp : Section::kExperts;
}

}  // namespace

const char* SectionName(Section section) {
  switch (section) {
    case Section::kKda:
      return "KDA";
    case Section::kLatentAttention:
      return "latent attention";
    case Section::kDenseMlp:
      return "dense MLP";
    case Section::kExperts:
      return "experts";
    case Section::kEnds:
      break;
  }
  return "embedding, logits, between ranges";
}

std::array<double, kSectionCount> MatrixWork(const worker::ModelConfig& config, int64_t tokens) {
  const int64_t hidden = config.hidden_size;
  const int64_t keys = config.kda_heads * config.kda_head_dim;
  const int64_t values = config.kda_value_heads * config.kda_value_head_dim;
  const int64_t decays = config.kda_value_heads * config.kda_head_dim;
  const int64_t rank = config.kda_value_head_dim;
  const int64_t kda = hidden * (2 * keys + 2 * values + 2 * rank + config.kda_value_heads) +
                      rank * (decays + values);
  const worker::LatentAttentionConfig& latent = config.latent;
  const int64_t attention =
      hidden * (latent.rank + latent.rope_dim +
                latent.heads * (latent.nope_dim + latent.rope_dim + latent.value_dim)) +
      latent.rank * latent.heads * (latent.nope_dim + latent.value_dim);
  const int64_t pair = latent.heads * (latent.nope_dim + latent.rope_dim + latent.value_dim);
  const worker::ExpertsConfig& experts = config.experts;
  const int64_t mixture =
      hidden * (3 * experts.width * (experts.per_token + experts.shared) + experts.count);
  const double n = static_cast<double>(tokens), pairs = n * (n + 1) / 2;
  std::array<double, kSectionCount> work{};
  for (const worker::LayerConfig& layer : config.layers) {
    double& mixer = At(work, SectionOf(layer.mixer));
    if (layer.mixer == worker::MixerKind::kKda) {
      mixer += 2 * n * static_cast<double>(kda);
    } else {
      mixer += 2 * (n * static_cast<double>(attention) + pairs * static_cast<double>(pair));
    }
    const int64_t mlp =
        layer.mlp == worker::MlpKind::kDense ? 3 * hidden * config.intermediate_size : mixture;
    At(work, SectionOf(layer.mlp)) += 2 * n * static_cast<double>(mlp);
  }
  At(work, Section::kEnds) = 2.0 * static_cast<double>(hidden * config.vocab_size);
  return work;
}

SectionTimes::SectionTimes(const worker::ModelConfig& config) : watcher_([this] { Watch(); }) {
  for (const worker::LayerConfig& layer : config.layers) {
    order_.push_back(SectionOf(layer.mixer));
    order_.push_back(SectionOf(layer.mlp));
  }
  order_.push_back(Section::kEnds);
}

SectionTimes::~SectionTimes() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

void SectionTimes::Start() {
  const std::lock_guard<std::mutex> lock(mutex_);
  current_ = Section::kEnds;
  next_ = 0;
  seconds_ = {};
  last_ = SecondsNow();
}

kernels::Status SectionTimes::Before(kernels::Operators& lane, const std::string& name) {
  if (name == "embedding") {
    next_ = 0;
    return {};
  }
  if (name != "norm") return {};
  if (next_ >= order_.size()) {
    return {kernels::StatusCode::kInternal, "sections: more norms than the model's layers have"};
  }
  if (kernels::Status s = MarkEnd(lane); !s.ok()) return s;
  current_ = order_[next_++];
  return {};
}

kernels::Status SectionTimes::MarkEnd(kernels::Operators& lane) {
  Mark mark;
  mark.ended = current_;
  if (kernels::Status s = lane.Mark(&mark.point); !s.ok()) return s;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    marks_.push_back(std::move(mark));
  }
  changed_.notify_all();
  return {};
}

kernels::Status SectionTimes::Finish(kernels::Operators& lane) {
  if (kernels::Status s = MarkEnd(lane); !s.ok()) return s;
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return marks_.empty() && !waiting_; });
  return failed_;
}

void SectionTimes::Watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !marks_.empty(); });
    if (stopping_) return;
    const Mark mark = std::move(marks_.front());
    marks_.pop_front();
    waiting_ = true;
    lock.unlock();
    const kernels::Status reached = mark.point->Wait();
    const double now = SecondsNow();
    lock.lock();
    if (!reached.ok() && failed_.ok()) failed_ = reached;
    At(seconds_, mark.ended) += now - last_;
    last_ = now;
    waiting_ = false;
    if (marks_.empty()) changed_.notify_all();
  }
}

}  // namespace deltafill::test
