#include "coordinator/snapshots/checkpoint_plan.h"

#include <algorithm>
#include <deque>

namespace deltafill::coordinator {
namespace {

constexpr int kPriceSteps = 64;  // of the bisection that meets count_max

// Sums over the changes before a candidate.
struct ChangesBefore {
  double weight = 0.0;
  double moment = 0.0;  // of weight * token
};

std::vector<ChangesBefore> SumChanges(std::span<const uint64_t> candidates,
                                      std::span<const FirstChange> changes) {
  std::vector<ChangesBefore> sums(candidates.size() + 1);  // the last: all of them
  size_t next = 0;
  ChangesBefore sum;
  for (size_t i = 0; i <= candidates.size(); ++i) {
    while (next < changes.size() &&
           (i == candidates.size() || changes[next].token < candidates[i])) {
      sum.weight += changes[next].weight;
      sum.moment += changes[next].weight * static_cast<double>(changes[next].token);
      ++next;
    }
    sums[i] = sum;
  }
  return sums;
}

// Keeping candidate a, and none up to b, costs the changes between them (token - a) each:
//   M_b - M_a - a * (W_b - W_a)
// so that best(b) is M_b plus the least of the lines  best(a) - M_a + a * W_a  -  a * W_b, whose
// slopes fall with a and are asked at growing W_b.
struct Line {
  double slope = 0.0;
  double offset = 0.0;
  size_t from = 0;  // candidate + 1; 0: boundary 0
  double At(double x) const { return slope * x + offset; }
};

class LowerHull {
 public:
  void Add(const Line& line) {
    while (lines_.size() >= 2 && IsHidden(lines_[lines_.size() - 2], lines_.back(), line)) {
      lines_.pop_back();
    }
    lines_.push_back(line);
  }
  // x never decreases.
  const Line& LeastAt(double x) {
    while (lines_.size() >= 2 && lines_[1].At(x) <= lines_[0].At(x)) lines_.pop_front();
    return lines_.front();
  }

 private:
  static bool IsHidden(const Line& before, const Line& line, const Line& after) {
    return (after.offset - before.offset) * (before.slope - line.slope) <=
           (line.offset - before.offset) * (before.slope - after.slope);
  }
  std::deque<Line> lines_;
};

// The best choice when each kept boundary costs `price` tokens.
std::vector<uint64_t> ChooseAt(double price, std::span<const uint64_t> candidates,
                               std::span<const ChangesBefore> sums) {
  std::vector<size_t> from(candidates.size() + 1);
  LowerHull hull;
  hull.Add({});
  for (size_t i = 0; i <= candidates.size(); ++i) {
    const Line& best = hull.LeastAt(sums[i].weight);
    from[i] = best.from;
    if (i == candidates.size()) break;
    const double cost = sums[i].moment + best.At(sums[i].weight) + price;
    const auto boundary = static_cast<double>(candidates[i]);
    hull.Add({-boundary, cost - sums[i].moment + boundary * sums[i].weight, i + 1});
  }
  std::vector<uint64_t> kept;
  for (size_t at = from.back(); at > 0; at = from[at - 1]) kept.push_back(candidates[at - 1]);
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace

std::vector<uint64_t> ChooseCheckpoints(std::span<const uint64_t> candidates,
                                        std::span<const FirstChange> changes,
                                        const CheckpointPrices& prices) {
  if (prices.count_max == 0 || candidates.empty() || prices.seconds_per_token <= 0.0) return {};
  const std::vector<ChangesBefore> sums = SumChanges(candidates, changes);
  double low =
      prices.seconds_per_byte * static_cast<double>(prices.state_bytes) / prices.seconds_per_token;
  std::vector<uint64_t> kept = ChooseAt(low, candidates, sums);
  if (kept.size() <= prices.count_max) return kept;
  // No boundary saves more than all of the recompute.
  double high = low + sums.back().moment;
  kept = ChooseAt(high, candidates, sums);
  for (int step = 0; step < kPriceSteps && kept.size() < prices.count_max; ++step) {
    const double price = low + (high - low) / 2;
    std::vector<uint64_t> tried = ChooseAt(price, candidates, sums);
    if (tried.size() <= prices.count_max) {
      kept = std::move(tried);
      high = price;
    } else {
      low = price;
    }
  }
  return kept;
}

}  // namespace deltafill::coordinator
