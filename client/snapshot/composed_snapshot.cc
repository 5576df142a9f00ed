#include "client/snapshot/composed_snapshot.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/snapshot/order_choice.h"
#include "client/snapshot/rendering.h"
#include "statestore/sha256.h"

namespace deltafill::client {
namespace {

constexpr size_t kHashBytes = 16;
constexpr double kLearningRate = 1.0 / 32;  // of one observed update

using KeptByPath = std::map<std::string_view, const KeptSegment*>;

std::string HashOf(Sha256* hasher, std::string_view text) {
  hasher->Update(text);
  const std::array<uint8_t, 32> digest = hasher->Finish();
  return {reinterpret_cast<const char*>(digest.data()), kHashBytes};
}

// One segment a file, in the tree's order.
absl::StatusOr<std::vector<ComposedSegment>> TokenizeFiles(const SourceTree& tree,
                                                           const Tokenize& tokenize) {
  std::vector<ComposedSegment> segments;
  Sha256 hasher;
  for (const SourceFile& file : tree.files) {
    const std::string text = RenderFile(file.path, file.contents);
    absl::StatusOr<std::vector<uint32_t>> tokens = tokenize(text);
    if (!tokens.ok()) {
      return absl::Status(tokens.status().code(),
                          absl::StrCat(file.path, ": ", tokens.status().message()));
    }
    ComposedSegment segment;
    segment.kept.path = file.path;
    segment.kept.content_hash = HashOf(&hasher, text);
    segment.kept.tokens = tokens->size();
    segment.tokens = *std::move(tokens);
    segments.push_back(std::move(segment));
  }
  return segments;
}

// As kept, then what is new; segments ascend by path.
std::vector<uint32_t> KeptOrder(std::span<const ComposedSegment> segments,
                                std::span<const KeptSegment> kept) {
  std::map<std::string_view, uint32_t> by_path;
  for (size_t i = 0; i < segments.size(); ++i) {
    by_path[segments[i].kept.path] = static_cast<uint32_t>(i);
  }
  std::vector<uint32_t> order;
  for (const KeptSegment& segment : kept) {
    const auto found = by_path.find(segment.path);
    if (found == by_path.end()) continue;
    order.push_back(found->second);
    by_path.erase(found);
  }
  for (const auto& [path, number] : by_path) order.push_back(number);
  return order;
}

void TakeRates(const KeptByPath& kept, std::vector<ComposedSegment>* segments) {
  const double equal = 1.0 / static_cast<double>(std::max<size_t>(segments->size(), 1));
  for (ComposedSegment& segment : *segments) {
    const auto found = kept.find(segment.kept.path);
    // What is new is likely to change soon.
    const double unseen = kept.empty() ? equal : std::max(equal, kLearningRate);
    segment.kept.change_rate = found == kept.end() ? unseen : found->second->change_rate;
    segment.kept.first_change = found == kept.end() ? unseen : found->second->first_change;
  }
}

// Compares with what was kept, in order.
void FindChanges(std::span<const KeptSegment> kept, const KeptByPath& by_path,
                 ComposedSnapshot* snapshot) {
  uint32_t still_there = 0;
  for (size_t i = 0; i < snapshot->segments.size(); ++i) {
    const KeptSegment& now = snapshot->segments[i].kept;
    const auto found = by_path.find(now.path);
    still_there += found != by_path.end() ? 1 : 0;
    const bool same = found != by_path.end() && found->second->content_hash == now.content_hash;
    snapshot->changed_files += same ? 0 : 1;
    const bool in_place = i < kept.size() && kept[i].path == now.path && same;
    if (!in_place && snapshot->first_changed.empty()) snapshot->first_changed = now.path;
  }
  const auto before = static_cast<uint32_t>(kept.size());
  snapshot->changed_files += before - std::min(before, still_there);
  const size_t length = snapshot->segments.size();
  if (snapshot->first_changed.empty() && kept.size() > length) {
    snapshot->first_changed = kept[length].path;  // it, and all after it, are gone
  }
}

void Learn(const KeptByPath& kept, ComposedSnapshot* snapshot) {
  if (snapshot->changed_files == 0) return;
  for (ComposedSegment& segment : snapshot->segments) {
    KeptSegment& now = segment.kept;
    const auto found = kept.find(now.path);
    if (found == kept.end()) continue;
    const double changed = found->second->content_hash == now.content_hash ? 0.0 : 1.0;
    const double first = now.path == snapshot->first_changed ? 1.0 : 0.0;
    now.change_rate += kLearningRate * (changed - now.change_rate);
    now.first_change += kLearningRate * (first - now.first_change);
  }
}

}  // namespace

absl::StatusOr<ComposedSnapshot> ComposeSnapshot(const SourceTree& tree, const Tokenize& tokenize,
                                                 std::span<const KeptSegment> kept,
                                                 OrderSource order_source, bool learn) {
  absl::StatusOr<std::vector<uint32_t>> header = tokenize(RenderedHeader());
  if (!header.ok()) return header.status();
  absl::StatusOr<std::vector<ComposedSegment>> segments = TokenizeFiles(tree, tokenize);
  if (!segments.ok()) return segments.status();
  KeptByPath by_path;
  for (const KeptSegment& segment : kept) by_path[segment.path] = &segment;
  TakeRates(by_path, &*segments);
  std::vector<uint32_t> order;
  if (order_source == OrderSource::kKept) {
    order = KeptOrder(*segments, kept);
  } else {
    absl::StatusOr<std::vector<uint32_t>> made = OrderByHistory(tree, !kept.empty(), &*segments);
    if (!made.ok()) return made.status();
    order = *std::move(made);
  }
  ComposedSnapshot snapshot;
  snapshot.header = *std::move(header);
  snapshot.tokens = snapshot.header.size();
  for (uint32_t number : order) {
    snapshot.tokens += (*segments)[number].kept.tokens;
    snapshot.segments.push_back(std::move((*segments)[number]));
  }
  if (learn || !kept.empty()) FindChanges(kept, by_path, &snapshot);
  if (learn) Learn(by_path, &snapshot);
  if (learn && order_source == OrderSource::kKept && snapshot.changed_files > 0) {
    if (absl::Status status = ProposeOrder(tree, order, &snapshot); !status.ok()) return status;
  }
  return snapshot;
}

}  // namespace deltafill::client
