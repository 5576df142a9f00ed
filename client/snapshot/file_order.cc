#include "client/snapshot/file_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace deltafill::client {
namespace {

constexpr double kHalfLife = 200;        // changes
constexpr size_t kChangedFilesMax = 64;  // of a change that says something
// Of a file's changes that the history has not seen. 0.05 to 0.3 order the repositories tried about
// equally well.
constexpr double kPriorWeight = 0.1;
constexpr size_t kCandidates = 64;  // sets whose completions are counted in each step

// A set during placing: what of it is not placed yet, and a mask that tells most non-subsets apart.
struct OpenSet {
  std::vector<uint32_t> files;
  double weight = 0.0;
  double tokens = 0.0;
  uint64_t mask = 0;
};

uint64_t MaskOf(const std::vector<uint32_t>& files) {
  uint64_t mask = 0;
  for (uint32_t file : files) mask |= uint64_t{1} << (file * 0x9E3779B1u >> 26);
  return mask;
}

class Placing {
 public:
  Placing(std::span<const uint64_t> lengths, std::span<const ChangeSet> changes)
      : lengths_(lengths), placed_(lengths.size(), false), weights_(lengths.size(), kPriorWeight) {
    for (const ChangeSet& change : changes) {
      if (change.files.empty()) continue;
      sets_.push_back({change.files, change.weight, 0.0, 0});
      for (uint32_t file : change.files) weights_[file] += change.weight;
    }
    singles_.resize(lengths.size());
    std::iota(singles_.begin(), singles_.end(), 0u);
    // The next one is at the back: short ones first; later numbers first among equals.
    std::stable_sort(singles_.begin(), singles_.end(),
                     [&](uint32_t a, uint32_t b) { return lengths[a] > lengths[b]; });
  }

  std::vector<uint32_t> Run() {
    while (order_.size() < lengths_.size()) {
      Shrink();
      const OpenSet* set = sets_.empty() ? nullptr : BestSet();
      while (placed_[singles_.back()]) singles_.pop_back();
      const double single = kPriorWeight / Length(singles_.back());
      if (set != nullptr && best_density_ >= single) {
        Place(set->files);
      } else {
        Place({singles_.back()});
      }
    }
    std::reverse(order_.begin(), order_.end());
    return std::move(order_);
  }

 private:
  double Length(uint32_t file) const { return static_cast<double>(lengths_[file]) + 1.0; }

  // Takes out what is placed and brings sets that became equal together.
  void Shrink() {
    if (!stale_) return;
    stale_ = false;
    for (OpenSet& set : sets_) {
      std::erase_if(set.files, [&](uint32_t file) { return placed_[file]; });
    }
    std::stable_sort(sets_.begin(), sets_.end(),
                     [](const OpenSet& a, const OpenSet& b) { return a.files < b.files; });
    std::vector<OpenSet> merged;
    for (OpenSet& set : sets_) {
      if (set.files.empty()) continue;
      if (!merged.empty() && merged.back().files == set.files) {
        merged.back().weight += set.weight;
        continue;
      }
      set.mask = MaskOf(set.files);
      set.tokens = 0.0;
      for (uint32_t file : set.files) set.tokens += Length(file);
      merged.push_back(std::move(set));
    }
    sets_ = std::move(merged);
  }

  // Of those that look best alone, the one with the most completed weight for its tokens.
  const OpenSet* BestSet() {
    std::vector<const OpenSet*> candidates;
    for (const OpenSet& set : sets_) candidates.push_back(&set);
    const size_t count = std::min(kCandidates, candidates.size());
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<int64_t>(count),
                      candidates.end(), [](const OpenSet* a, const OpenSet* b) {
                        const double left = a->weight * b->tokens, right = b->weight * a->tokens;
                        return left != right ? left > right : a->files < b->files;
                      });
    candidates.resize(count);
    const OpenSet* best = nullptr;
    for (const OpenSet* candidate : candidates) {
      const double density = CompletedWeight(*candidate) / candidate->tokens;
      if (best != nullptr && density <= best_density_) continue;
      best = candidate;
      best_density_ = density;
    }
    return best;
  }

  double CompletedWeight(const OpenSet& set) const {
    double weight = kPriorWeight * static_cast<double>(set.files.size());
    for (const OpenSet& other : sets_) {
      if ((other.mask & ~set.mask) != 0 || other.files.size() > set.files.size()) continue;
      if (std::includes(set.files.begin(), set.files.end(), other.files.begin(),
                        other.files.end())) {
        weight += other.weight;
      }
    }
    return weight;
  }

  void Place(std::vector<uint32_t> files) {
    std::stable_sort(files.begin(), files.end(), [&](uint32_t a, uint32_t b) {
      const double left = weights_[a] * Length(b), right = weights_[b] * Length(a);
      return left != right ? left > right : a > b;
    });
    for (uint32_t file : files) {
      order_.push_back(file);
      placed_[file] = true;
    }
    stale_ = true;
  }

  const std::span<const uint64_t> lengths_;
  std::vector<bool> placed_;
  std::vector<double> weights_;  // of all sets with the file
  std::vector<OpenSet> sets_;
  std::vector<uint32_t> singles_;
  std::vector<uint32_t> order_;  // from the end
  double best_density_ = 0.0;
  bool stale_ = true;
};

}  // namespace

std::vector<ChangeSet> ReadHistory(std::span<const std::vector<std::string>> history,
                                   std::span<const std::string> paths) {
  std::vector<ChangeSet> changes;
  for (size_t age = 0; age < history.size(); ++age) {
    ChangeSet change;
    change.weight = std::exp2(-static_cast<double>(age) / kHalfLife);
    for (const std::string& path : history[age]) {
      const auto found = std::lower_bound(paths.begin(), paths.end(), path);
      if (found == paths.end() || *found != path) continue;
      change.files.push_back(static_cast<uint32_t>(found - paths.begin()));
    }
    if (change.files.empty() || change.files.size() > kChangedFilesMax) continue;
    std::sort(change.files.begin(), change.files.end());
    change.files.erase(std::unique(change.files.begin(), change.files.end()), change.files.end());
    changes.push_back(std::move(change));
  }
  return changes;
}

std::vector<uint32_t> OrderByChange(std::span<const uint64_t> lengths,
                                    std::span<const ChangeSet> changes) {
  return Placing(lengths, changes).Run();
}

std::vector<uint32_t> OrderByRate(std::span<const uint64_t> lengths,
                                  std::span<const double> rates) {
  std::vector<uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return rates[a] * static_cast<double>(lengths[b]) < rates[b] * static_cast<double>(lengths[a]);
  });
  return order;
}

double ExpectedRecompute(std::span<const uint32_t> order, std::span<const uint64_t> lengths,
                         std::span<const double> rates) {
  double expected = 0.0, after = 0.0;
  for (size_t i = order.size(); i-- > 0;) {
    after += static_cast<double>(lengths[order[i]]);
    expected += rates[order[i]] * after;
  }
  return expected;
}

ChangeRates RatesOf(std::span<const uint32_t> order, std::span<const ChangeSet> changes) {
  std::vector<size_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  double weight = kPriorWeight * static_cast<double>(order.size());
  for (const ChangeSet& change : changes) weight += change.weight;
  weight = std::max(weight, kPriorWeight);
  ChangeRates rates;
  rates.change.assign(order.size(), kPriorWeight / weight);
  rates.first = rates.change;
  for (const ChangeSet& change : changes) {
    uint32_t foremost = change.files.front();
    for (uint32_t file : change.files) {
      rates.change[file] += change.weight / weight;
      if (place[file] < place[foremost]) foremost = file;
    }
    rates.first[foremost] += change.weight / weight;
  }
  return rates;
}

}  // namespace deltafill::client
