// Encodes a file with a model directory's tokenizer: writes the ids, so that they can be compared,
// and says how much processor time the fastest of several rounds took.
//
// Usage: tokenizer_bench DIRECTORY TEXT_FILE IDS_FILE|- ROUNDS [--special]
// Prints: seconds to make the tokenizer, seconds to encode, bytes, tokens. Ids are written as
// 32-bit little endian.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "coordinator/tokenizer/tokenizer.h"
#include "worker/model/tokenizer_file.h"

namespace {

// Processor time: what else the machine does does not count.
double SecondsSince(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

template <typename T>
T OrExit(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: tokenizer_bench DIRECTORY TEXT IDS|- ROUNDS [--special]\n");
    return 2;
  }
  std::ifstream stream(argv[2], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const bool allow_special = argc > 5 && std::string_view(argv[5]) == "--special";
  const auto file = OrExit(deltafill::worker::ReadTokenizerFile(argv[1]));
  std::clock_t start = std::clock();
  const auto tokenizer = OrExit(deltafill::coordinator::NewTokenizer(file.kind, file.contents));
  const double made_s = SecondsSince(start);
  std::vector<uint32_t> ids;
  double encode_s = 1e30;
  for (int round = 0; round < std::max(1, std::atoi(argv[4])); ++round) {
    start = std::clock();
    ids = OrExit(tokenizer->Encode(text, allow_special));
    encode_s = std::min(encode_s, SecondsSince(start));
  }
  if (std::string_view(argv[3]) != "-") {
    std::ofstream(argv[3], std::ios::binary)
        .write(reinterpret_cast<const char*>(ids.data()),
               static_cast<std::streamsize>(ids.size() * sizeof(uint32_t)));
  }
  std::printf("%.6f %.6f %zu %zu\n", made_s, encode_s, text.size(), ids.size());
}
