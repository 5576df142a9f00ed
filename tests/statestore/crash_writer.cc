// Stores states until it is killed: crash_writer DIRECTORY FIRST_INDEX. Says "+i" once state i is
// durable and "-i" once it is deleted for good, one a line, on standard output.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/statestore/crash_states.h"

namespace deltafill::testing {
namespace {

void Say(char sign, uint32_t index) {
  const std::string line = sign + std::to_string(index) + "\n";
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) std::exit(1);
}

int Run(const std::string& directory, uint32_t first) {
  auto store = OpenRocksStore({.directory = directory});
  if (!store.ok()) {
    std::fprintf(stderr, "%s\n", store.status().ToString().c_str());
    return 1;
  }
  const TenantSalt salt = *(*store)->GetTenantSalt("acme");
  for (uint32_t i = first;; ++i) {
    const CrashState state(salt, i);
    const absl::Status stored =
        StoreState(store->get(), "acme", state.id, 64, state.seeds, state.floats_per_layer)
            .status();
    if (!stored.ok()) {
      std::fprintf(stderr, "%s\n", stored.ToString().c_str());
      return 1;
    }
    Say('+', i);
    if (i % 5 == 4) {
      const absl::Status removed = (*store)->Delete("acme", CrashState(salt, i - 2).id);
      if (removed.ok()) Say('-', i - 2);
    }
  }
}

}  // namespace
}  // namespace deltafill::testing

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return deltafill::testing::Run(argv[1], static_cast<uint32_t>(std::atoi(argv[2])));
}
