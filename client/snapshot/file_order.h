// In which order a snapshot's files stand: what is likely to change, for its length, goes last, so
// that an update recomputes little. Pure and deterministic.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_FILE_ORDER_H_
#define DELTAFILL_CLIENT_SNAPSHOT_FILE_ORDER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace deltafill::client {

// The files that changed together, as indices of the files there are; ascending, no repeats.
struct ChangeSet {
  std::vector<uint32_t> files;
  double weight = 0.0;
};

// From a history, the newest change first: a change's weight halves every 200. Paths that are not
// among `paths` (ascending) do not count; changes of more than 64 files say nothing and are left
// out.
std::vector<ChangeSet> ReadHistory(std::span<const std::vector<std::string>> history,
                                   std::span<const std::string> paths);

// An order of files 0 to lengths.size() - 1, where ties go by number. An update recomputes from its
// first changed file to the end, so a change costs the tokens from its foremost file on. Placed
// from the end: each time the set with the most weight for the tokens it adds, counting every other
// set that it completes, and a small weight for each file that never changed. (Scheduling with sets
// that must be complete is NP-hard; this greedy rule reaches about half of what knowing the future
// would.)
std::vector<uint32_t> OrderByChange(std::span<const uint64_t> lengths,
                                    std::span<const ChangeSet> changes);

// Without a history: by rate for length, ascending; ties by number. The best order if files change
// one at a time (Smith's rule).
std::vector<uint32_t> OrderByRate(std::span<const uint64_t> lengths, std::span<const double> rates);

// Expected tokens recomputed an update, if files change one at a time at these rates.
double ExpectedRecompute(std::span<const uint32_t> order, std::span<const uint64_t> lengths,
                         std::span<const double> rates);

struct ChangeRates {
  std::vector<double> change;  // expected changes an update, by file
  std::vector<double> first;   // expected updates whose foremost changed file is this one
};

// What a history says of files in an order.
ChangeRates RatesOf(std::span<const uint32_t> order, std::span<const ChangeSet> changes);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_FILE_ORDER_H_
