#include "statestore/rocks_log.h"

#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace deltafill {
namespace {

constexpr uintmax_t kLogBytesMax = 1 << 20;
constexpr size_t kLineBytesMax = 4096;  // the rest of a line is left out

class RocksLog final : public rocksdb::Logger {
 public:
  explicit RocksLog(std::FILE* file) : Logger(rocksdb::WARN_LEVEL), file_(file) {}
  ~RocksLog() override {
    if (file_ != nullptr) (void)std::fclose(file_);
  }

  // Every setting at every start: the OPTIONS file has them.
  void LogHeader(const char* /*format*/, va_list /*arguments*/) override {}

  void Logv(const char* format, va_list arguments) override {
    if (file_ == nullptr) return;
    char line[kLineBytesMax];
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    const size_t stamp = std::strftime(line, sizeof(line), "%FT%TZ ", gmtime_r(&now, &utc));
    const int message = std::vsnprintf(line + stamp, sizeof(line) - stamp, format, arguments);
    if (message < 0) return;
    std::string_view text(line);
    while (text.ends_with('\n')) text.remove_suffix(1);
    // One call a line: threads do not mix theirs.
    (void)std::fprintf(file_, "%.*s\n", static_cast<int>(text.size()), text.data());
    (void)std::fflush(file_);
  }
  using Logger::Logv;

 private:
  std::FILE* const file_;
};

}  // namespace

std::shared_ptr<rocksdb::Logger> OpenRocksLog(const std::string& directory) {
  const std::string path = directory + "/LOG";
  std::error_code error;
  if (const uintmax_t bytes = std::filesystem::file_size(path, error);
      !error && bytes > kLogBytesMax) {
    std::filesystem::rename(path, path + ".old", error);
  }
  return std::make_shared<RocksLog>(std::fopen(path.c_str(), "ae"));
}

}  // namespace deltafill
