// Writes the seeds of the state store's fuzzers: seed_writer DIRECTORY.
#include <filesystem>
#include <fstream>
#include <string>

#include "statestore/records.h"

namespace deltafill {
namespace {

void WriteSeed(const std::filesystem::path& file, const std::string& bytes) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
}

void WriteSeeds(const std::filesystem::path& directory) {
  for (uint32_t layer_count : {1, 2, 30}) {
    PartHeader header;
    for (uint32_t layer = 0; layer < layer_count; ++layer) header.layers.push_back(2 * layer);
    header.kind = layer_count == 2 ? PartKind::kLatent : PartKind::kRecurrent;
    header.token_count = layer_count == 2 ? 64 : 0;
    header.shape = {2, 4, 4, 1};
    const std::vector<std::byte> payload(header.LayerBytes());
    const std::vector<std::span<const std::byte>> layers(layer_count, payload);
    WriteSeed(directory / "part" / std::to_string(layer_count), *EncodePartHeader(header, layers));
  }
  for (uint8_t part_count : {1, 2, 9}) {
    Manifest manifest;
    manifest.tenant = "tenant";
    manifest.numerics = "cpu-fp32";
    manifest.boundary = 64 * part_count;
    for (uint8_t i = 0; i < part_count; ++i) {
      manifest.parts.push_back({PartId{{i}}, PartKind::kRecurrent, 1000});
    }
    std::string encoded = EncodeManifest(manifest);
    WriteSeed(directory / "manifest" / std::to_string(part_count),
              encoded.substr(1, encoded.size() - 9));
  }
}

}  // namespace
}  // namespace deltafill

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  deltafill::WriteSeeds(argv[1]);
  return 0;
}
