#include "client/snapshot/remembered_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "statestore/sha256.h"

namespace deltafill::client {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

fs::path Folder() {
  if (const std::string own = Environment("DELTAFILL_STATE_DIR"); !own.empty()) {
    return fs::path(own) / "snapshots";
  }
  // The XDG base directory specification: a relative path does not count.
  if (const std::string xdg = Environment("XDG_STATE_HOME"); xdg.starts_with('/')) {
    return fs::path(xdg) / "deltafill" / "snapshots";
  }
  const std::string home = Environment("HOME");
  return fs::path(home.empty() ? "." : home) / ".local" / "state" / "deltafill" / "snapshots";
}

fs::path FileOf(const ServerOptions& server, const std::string& name) {
  Sha256 hasher;
  hasher.Update(absl::StrCat(server.server, "\n", server.tenant, "\n", name));
  const std::array<uint8_t, 32> digest = hasher.Finish();
  const std::string hash =
      absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), 8});
  return Folder() / absl::StrCat(name, "-", hash, ".json");
}

}  // namespace

absl::Status Remember(const ServerOptions& server, const std::string& name,
                      const RememberedDirectory& remembered) {
  const fs::path file = FileOf(server, name);
  const fs::path making = absl::StrCat(file.string(), ".", getpid());
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  const Json json = {{"name", name},
                     {"server", server.server},
                     {"tenant", server.tenant},
                     {"directory", remembered.directory},
                     {"model", remembered.model},
                     {"file_bytes_max", remembered.tree.file_bytes_max},
                     {"plain", remembered.tree.plain},
                     {"checkpoint_bytes_max", remembered.checkpoint_bytes_max},
                     {"versions_max", remembered.versions_max}};
  std::ofstream out(making, std::ios::trunc);
  out << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  out.close();
  chmod(making.c_str(), S_IRUSR | S_IWUSR);
  if (out) fs::rename(making, file, error);
  if (out && !error) return absl::OkStatus();
  fs::remove(making, error);
  return absl::FailedPreconditionError(
      absl::StrCat(file.string(), ": cannot be written (DELTAFILL_STATE_DIR says where)"));
}

absl::StatusOr<RememberedDirectory> Recall(const ServerOptions& server, const std::string& name) {
  const fs::path file = FileOf(server, name);
  std::ifstream in(file);
  if (!in) {
    return absl::NotFoundError(absl::StrCat(
        "which directory ", name, " is made of is not remembered here; name it with --dir"));
  }
  const Json json = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  const auto malformed = [&] {
    return absl::FailedPreconditionError(
        absl::StrCat(file.string(), ": malformed; name the directory with --dir"));
  };
  if (!json.is_object()) return malformed();
  RememberedDirectory remembered;
  try {
    remembered.directory = json.at("directory").get<std::string>();
    remembered.model = json.at("model").get<std::string>();
    remembered.tree.file_bytes_max = json.at("file_bytes_max").get<uint64_t>();
    remembered.tree.plain = json.at("plain").get<bool>();
    remembered.checkpoint_bytes_max = json.at("checkpoint_bytes_max").get<uint64_t>();
    remembered.versions_max = json.at("versions_max").get<uint32_t>();
  } catch (const Json::exception&) {
    return malformed();
  }
  return remembered;
}

void Forget(const ServerOptions& server, const std::string& name) {
  std::error_code error;
  fs::remove(FileOf(server, name), error);
}

}  // namespace deltafill::client
