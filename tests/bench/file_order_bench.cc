// Orders files as a snapshot does, for snapshot_orders.py. From standard input: the number of files
// and their lengths, then changes until the end, each its weight, its number of files and them.
// Prints the order.
#include <cstdio>
#include <iostream>
#include <vector>

#include "client/snapshot/file_order.h"

int main() {
  std::ios::sync_with_stdio(false);
  size_t count = 0;
  std::cin >> count;
  std::vector<uint64_t> lengths(count);
  for (uint64_t& length : lengths) std::cin >> length;
  std::vector<deltafill::client::ChangeSet> changes;
  for (deltafill::client::ChangeSet change; std::cin >> change.weight >> count;) {
    change.files.resize(count);
    for (uint32_t& file : change.files) {
      std::cin >> file;
      if (file >= lengths.size()) std::cin.setstate(std::ios::failbit);
    }
    if (!std::cin) break;
    changes.push_back(change);
  }
  if (!std::cin.eof()) {
    std::fprintf(stderr, "file_order_bench: malformed input\n");
    return 2;
  }
  for (uint32_t file : deltafill::client::OrderByChange(lengths, changes))
    std::printf("%u\n", file);
  return 0;
}
