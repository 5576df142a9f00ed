#include "client/snapshot/rendering.h"

#include <algorithm>

#include "client/snapshot/text_filter.h"

namespace deltafill::client {
namespace {

constexpr size_t kFenceMin = 5;

size_t LongestFence(std::string_view contents) {
  size_t longest = 0;
  for (size_t line = 0; line < contents.size();) {
    size_t end = line;
    while (end < contents.size() && contents[end] == '=') ++end;
    longest = std::max(longest, end - line);
    line = contents.find('\n', end);
    if (line == std::string_view::npos) break;
    ++line;
  }
  return longest;
}

}  // namespace

std::string_view RenderedHeader() {
  return "These are the files of a source tree. Each stands between two lines of equals signs; the "
         "first gives its path.\n\n";
}

std::string QuotePath(std::string_view path) {
  const auto is_odd = [](unsigned char c) {
    return c < 0x20 || c == 0x7F || c == '"' || c == '\\';
  };
  const bool is_text = FindInvalidUtf8(path) == std::string_view::npos;
  if (is_text && std::none_of(path.begin(), path.end(), is_odd)) return std::string(path);
  std::string quoted = "\"";
  for (const char character : path) {
    const auto byte = static_cast<unsigned char>(character);
    if (is_odd(byte) || (!is_text && byte >= 0x80)) {
      quoted.push_back('\\');
      for (int shift = 6; shift >= 0; shift -= 3) {
        quoted.push_back(static_cast<char>('0' + ((byte >> shift) & 7)));
      }
    } else {
      quoted.push_back(character);
    }
  }
  quoted.push_back('"');
  return quoted;
}

std::string RenderFile(std::string_view quoted_path, std::string_view contents) {
  const std::string fence(std::max(kFenceMin, LongestFence(contents) + 1), '=');
  std::string text;
  text.reserve(contents.size() + quoted_path.size() + 2 * fence.size() + 16);
  text.append(fence).append(" ").append(quoted_path).append("\n").append(contents);
  if (!contents.empty() && !contents.ends_with('\n')) text.push_back('\n');
  text.append(fence).append(" end\n\n");
  return text;
}

}  // namespace deltafill::client
