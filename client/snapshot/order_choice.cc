#include "client/snapshot/order_choice.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <string_view>

#include "client/snapshot/file_order.h"
#include "client/snapshot/rendering.h"

namespace deltafill::client {
namespace {

// An order is proposed if it pays for itself within so many updates.
constexpr double kUpdatesToPay = 20;

std::vector<uint64_t> LengthsOf(std::span<const ComposedSegment> segments) {
  std::vector<uint64_t> lengths;
  for (const ComposedSegment& segment : segments) lengths.push_back(segment.kept.tokens);
  return lengths;
}

std::vector<double> KeptRates(std::span<const ComposedSegment> segments) {
  std::vector<double> rates;
  for (const ComposedSegment& segment : segments) rates.push_back(segment.kept.change_rate);
  return rates;
}

absl::StatusOr<std::vector<ChangeSet>> ReadChanges(const SourceTree& tree) {
  std::vector<ChangeSet> none;
  if (tree.git == nullptr) return none;
  absl::StatusOr<std::vector<std::vector<std::string>>> history = tree.git->ChangeHistory();
  if (!history.ok()) return history.status();
  std::vector<std::string> paths;
  for (const SourceFile& file : tree.files) paths.push_back(file.path);
  for (std::vector<std::string>& change : *history) {
    for (std::string& path : change) path = QuotePath(path);
  }
  return ReadHistory(*history, paths);
}

uint64_t TokensFrom(const ComposedSnapshot& snapshot, std::string_view path) {
  uint64_t tokens = 0;
  for (size_t i = snapshot.segments.size(); i-- > 0;) {
    tokens += snapshot.segments[i].kept.tokens;
    if (snapshot.segments[i].kept.path == path) return tokens;
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> OrderByHistory(const SourceTree& tree, bool has_kept,
                                                     std::vector<ComposedSegment>* segments) {
  absl::StatusOr<std::vector<ChangeSet>> changes = ReadChanges(tree);
  if (!changes.ok()) return changes.status();
  const std::vector<uint64_t> lengths = LengthsOf(*segments);
  if (changes->empty()) {
    const std::vector<double> equal(segments->size(), 0.0);
    return OrderByRate(lengths, has_kept ? KeptRates(*segments) : equal);
  }
  std::vector<uint32_t> order = OrderByChange(lengths, *changes);
  const ChangeRates rates = RatesOf(order, *changes);
  for (size_t i = 0; i < segments->size(); ++i) {
    (*segments)[i].kept.change_rate = rates.change[i];
    (*segments)[i].kept.first_change = rates.first[i];
  }
  return order;
}

absl::Status ProposeOrder(const SourceTree& tree, const std::vector<uint32_t>& as_it_is,
                          ComposedSnapshot* snapshot) {
  // An update that recomputed little shows no file that sits too early; the history is not read.
  const uint64_t recomputed = TokensFrom(*snapshot, snapshot->first_changed);
  if (recomputed * kUpdatesToPay <= snapshot->tokens) return absl::OkStatus();
  const absl::StatusOr<std::vector<ChangeSet>> changes = ReadChanges(tree);
  if (!changes.ok()) return changes.status();
  std::vector<uint64_t> lengths(as_it_is.size());
  std::vector<double> rates(as_it_is.size());
  for (size_t i = 0; i < as_it_is.size(); ++i) {
    lengths[as_it_is[i]] = snapshot->segments[i].kept.tokens;
    rates[as_it_is[i]] = snapshot->segments[i].kept.change_rate;
  }
  const std::vector<uint32_t> proposed =
      changes->empty() ? OrderByRate(lengths, rates) : OrderByChange(lengths, *changes);
  const auto expected = [&](const std::vector<uint32_t>& order) {
    if (!changes->empty()) {
      return ExpectedRecompute(order, lengths, RatesOf(order, *changes).first);
    }
    // Of several files that change at once only the foremost costs.
    const double at_once = std::accumulate(rates.begin(), rates.end(), 0.0);
    return ExpectedRecompute(order, lengths, rates) / std::max(at_once, 1.0);
  };
  const double saved = expected(as_it_is) - expected(proposed);
  uint64_t once = 0;
  const auto differs = std::mismatch(as_it_is.begin(), as_it_is.end(), proposed.begin()).first;
  for (auto at = differs; at != as_it_is.end(); ++at) once += lengths[*at];
  if (saved * kUpdatesToPay <= static_cast<double>(once)) return absl::OkStatus();
  snapshot->proposal = OrderProposal{saved, once};
  return absl::OkStatus();
}

}  // namespace deltafill::client
