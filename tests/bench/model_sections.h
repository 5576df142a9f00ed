// Where a whole model's prefill spends its time, without disturbing it: the lane is marked wherever
// a mixer or an MLP begins, and a thread of its own notes when each mark is reached.
#ifndef DELTAFILL_TESTS_BENCH_MODEL_SECTIONS_H_
#define DELTAFILL_TESTS_BENCH_MODEL_SECTIONS_H_

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/observed_operators.h"
#include "worker/model/config.h"

namespace deltafill::test {

// Each with the norm before it. kEnds: embedding, final norm, logits, and between ranges.
enum class Section : uint8_t { kKda, kLatentAttention, kDenseMlp, kExperts, kEnds };
inline constexpr size_t kSectionCount = 5;
const char* SectionName(Section section);

// Multiplications and additions that the equations of a prompt of `tokens` tokens from position 0
// need in matrix products: every product of a weight that a token meets (of experts the chosen
// ones, the shared one and the router; of kv_b_proj once a token), and of latent attention the
// scores and values of each pair of a query and a key it sees. The delta rule is not counted, and
// the logits are the last token's.
std::array<double, kSectionCount> MatrixWork(const worker::ModelConfig& config, int64_t tokens);

// Seconds by section. One lane and one pass at a time; Start, the pass's calls, Finish.
class SectionTimes final : public OperatorObserver {
 public:
  explicit SectionTimes(const worker::ModelConfig& config);
  ~SectionTimes() override;

  // The lane has no work.
  void Start();
  // Waits for all of it.
  kernels::Status Finish(kernels::Operators& lane);
  // Of everything between Start and Finish.
  const std::array<double, kSectionCount>& seconds() const { return seconds_; }

  // A pass is an embedding, then for each layer a norm and its mixer and a norm and its MLP, then a
  // last norm.
  kernels::Status Before(kernels::Operators& lane, const std::string& name) override;
  kernels::Status After(kernels::Operators&, const std::string&) override { return {}; }

 private:
  struct Mark {
    std::unique_ptr<kernels::LanePoint> point;
    Section ended = Section::kEnds;
  };

  kernels::Status MarkEnd(kernels::Operators& lane);
  void Watch();

  std::vector<Section> order_;  // of a pass, after the embedding
  size_t next_ = 0;             // in order_
  Section current_ = Section::kEnds;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Mark> marks_;  // under mutex_, as all below
  bool waiting_ = false;    // the watcher, for a mark that it took
  bool stopping_ = false;
  kernels::Status failed_;
  double last_ = 0;
  std::array<double, kSectionCount> seconds_{};
  std::thread watcher_;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_BENCH_MODEL_SECTIONS_H_
