// state fetch: writes a state's tensors as a safetensors file, as they arrive.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "client/commands.h"
#include "client/connection.h"
#include "client/messages.h"

namespace deltafill::client {
namespace {

bool ParseHeads(const std::string& heads, v1::FetchStateRequest* request) {
  if (heads.empty()) return true;
  unsigned begin = 0, end = 0;
  char rest = 0;
  if (std::sscanf(heads.c_str(), "%u:%u%c", &begin, &end, &rest) != 2 || begin >= end) {
    std::fprintf(stderr, "deltafill: --heads %s: want begin:end with begin < end\n", heads.c_str());
    return false;
  }
  request->set_head_begin(begin);
  request->set_head_end(end);
  return true;
}

// The safetensors header, padded with spaces so that the bytes after it start at a multiple of 8.
std::string SafetensorsHeader(const v1::FetchStateStart& start) {
  Json header = Json::object();
  Json metadata = Json::object();
  // Maps of protobuf have no order, and files must be reproducible.
  for (const auto& [name, value] :
       std::map<std::string, std::string>(start.metadata().begin(), start.metadata().end())) {
    metadata[name] = value;
  }
  header["__metadata__"] = std::move(metadata);
  uint64_t offset = 0;
  for (const auto& tensor : start.tensors()) {
    header[tensor.name()] = {{"dtype", tensor.dtype()},
                             {"shape", tensor.shape()},
                             {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::string out;
  for (int byte = 0; byte < 8; ++byte) out.push_back(static_cast<char>(size >> (8 * byte)));
  return out + text;
}

v1::FetchStateRequest MakeRequest(const StateFetchOptions& options) {
  v1::FetchStateRequest request;
  request.set_state(options.state);
  request.set_layout(options.layout);
  request.set_position(options.at == "end" ? v1::STATE_POSITION_END : v1::STATE_POSITION_BLOCK);
  request.mutable_layers()->Add(options.layers.begin(), options.layers.end());
  return request;
}

}  // namespace

int RunStateFetch(const StateFetchOptions& options) {
  v1::FetchStateRequest request = MakeRequest(options);
  if (!ParseHeads(options.heads, &request)) return 2;
  Connection connection(options.server);
  grpc::ClientContext context;
  if (!connection.Prepare(&context)) return 2;
  // Written beside its place and renamed when it is whole.
  const std::string partial = options.out_file + ".partial";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  auto stream = connection.stub().FetchState(&context, request);
  v1::FetchStateEvent event;
  v1::FetchStateStart start;
  bool whole = false;
  while (stream->Read(&event)) {
    if (event.has_start()) {
      start = event.start();
      const std::string header = SafetensorsHeader(start);
      file.write(header.data(), static_cast<std::streamsize>(header.size()));
    }
    file.write(event.chunk().data(), static_cast<std::streamsize>(event.chunk().size()));
    whole = event.has_end();
  }
  const grpc::Status status = stream->Finish();
  file.close();
  std::error_code error;
  if (status.ok() && whole && file) std::filesystem::rename(partial, options.out_file, error);
  if (!status.ok() || !whole || !file || error) {
    std::filesystem::remove(partial, error);
    if (!status.ok()) return connection.Fail(status);
    std::fprintf(stderr, "deltafill: --out %s: cannot write\n", options.out_file.c_str());
    return 1;
  }
  if (options.server.json) {
    PrintJson({{"out", options.out_file},
               {"tensors", start.tensors_size()},
               {"boundary", start.state().boundary()},
               {"bytes", std::filesystem::file_size(options.out_file, error)}});
  } else {
    std::printf("%s: %d tensors\n", options.out_file.c_str(), start.tensors_size());
  }
  return 0;
}

}  // namespace deltafill::client
