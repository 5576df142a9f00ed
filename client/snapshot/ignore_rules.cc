#include "client/snapshot/ignore_rules.h"

#include <optional>

namespace deltafill::client {
namespace {

std::vector<std::string> SplitNames(std::string_view path) {
  std::vector<std::string> names;
  for (;;) {
    const size_t slash = path.find('/');
    names.emplace_back(path.substr(0, slash));
    if (slash == std::string_view::npos) return names;
    path.remove_prefix(slash + 1);
  }
}

// Trailing spaces do not count unless one is escaped.
std::string_view StripEnd(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  while (line.ends_with(' ') && !line.ends_with("\\ ")) line.remove_suffix(1);
  return line;
}

// [...] at the front of pattern: whether it has c; none if it is no class. *length is what it
// takes.
std::optional<bool> MatchesClass(std::string_view pattern, char c, size_t* length) {
  size_t at = 1;
  const bool negated = at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^');
  at += negated ? 1 : 0;
  bool found = false;
  for (bool first = true; at < pattern.size(); first = false) {
    if (pattern[at] == ']' && !first) {
      *length = at + 1;
      return found != negated;
    }
    if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
    const auto low = static_cast<unsigned char>(pattern[at]);
    auto high = low;
    if (at + 2 < pattern.size() && pattern[at + 1] == '-' && pattern[at + 2] != ']') {
      high = static_cast<unsigned char>(pattern[at + 2]);
      at += 2;
    }
    const auto byte = static_cast<unsigned char>(c);
    found = found || (low <= byte && byte <= high);
    ++at;
  }
  return std::nullopt;
}

// Whether the first element of pattern takes c; *length is the element's.
bool TakesOne(std::string_view pattern, char c, size_t* length) {
  *length = 1;
  if (pattern[0] == '?') return true;
  if (pattern[0] == '[') {
    const std::optional<bool> in_class = MatchesClass(pattern, c, length);
    if (in_class) return *in_class;
    *length = 1;
  }
  if (pattern[0] == '\\' && pattern.size() > 1) {
    *length = 2;
    return pattern[1] == c;
  }
  return pattern[0] == c;
}

}  // namespace

bool MatchesName(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0;
  size_t star = std::string_view::npos, star_name = 0;  // where to go back to
  while (n < name.size()) {
    size_t length = 0;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_name = n;
    } else if (p < pattern.size() && TakesOne(pattern.substr(p), name[n], &length)) {
      p += length;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;  // the star takes one more
      n = ++star_name;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

void IgnoreRules::Add(const std::string& directory, std::string_view contents) {
  std::vector<Rule>& rules = rules_[directory];
  while (!contents.empty()) {
    const size_t end = contents.find('\n');
    std::string_view line = StripEnd(contents.substr(0, end));
    contents.remove_prefix(end == std::string_view::npos ? contents.size() : end + 1);
    if (line.empty() || line[0] == '#') continue;
    Rule rule;
    rule.negated = line[0] == '!';
    if (rule.negated) line.remove_prefix(1);
    rule.directories_only = line.ends_with('/');
    if (rule.directories_only) line.remove_suffix(1);
    rule.anchored = line.find('/') != std::string_view::npos;
    if (line.starts_with('/')) line.remove_prefix(1);
    if (line.empty()) continue;
    rule.names = SplitNames(line);
    rules.push_back(std::move(rule));
  }
}

bool IgnoreRules::Matches(const Rule& rule, std::string_view below, bool is_directory) {
  if (rule.directories_only && !is_directory) return false;
  if (!rule.anchored) {
    return MatchesName(rule.names[0], below.substr(below.rfind('/') + 1));
  }
  // reach[j]: the names before this one match the path's first j names.
  const std::vector<std::string> names = SplitNames(below);
  std::vector<char> reach(names.size() + 1, 0);
  reach[0] = 1;
  for (size_t i = 0; i < rule.names.size(); ++i) {
    std::vector<char> next(names.size() + 1, 0);
    const bool any_depth = rule.names[i] == "**";
    const bool last = i + 1 == rule.names.size();
    for (size_t j = 0; j <= names.size(); ++j) {
      if (!reach[j]) continue;
      if (any_depth) {
        // At the end it stands for everything inside, so for one name at least.
        for (size_t to = j + (last ? 1 : 0); to <= names.size(); ++to) next[to] = 1;
      } else if (j < names.size() && MatchesName(rule.names[i], names[j])) {
        next[j + 1] = 1;
      }
    }
    reach = std::move(next);
  }
  return reach[names.size()] != 0;
}

bool IgnoreRules::IsIgnored(std::string_view path, bool is_directory) const {
  std::string_view directory = path;
  for (;;) {
    const size_t slash = directory.rfind('/');
    directory = slash == std::string_view::npos ? std::string_view() : directory.substr(0, slash);
    const auto found = rules_.find(directory);
    if (found != rules_.end()) {
      const std::string_view below = directory.empty() ? path : path.substr(directory.size() + 1);
      for (auto rule = found->second.rbegin(); rule != found->second.rend(); ++rule) {
        if (Matches(*rule, below, is_directory)) return !rule->negated;
      }
    }
    if (directory.empty()) return false;
  }
}

bool IgnoreRules::IsIgnoredWithParents(std::string_view path) const {
  if (rules_.empty()) return false;
  for (size_t slash = path.find('/'); slash != std::string_view::npos;
       slash = path.find('/', slash + 1)) {
    if (IsIgnored(path.substr(0, slash), true)) return true;
  }
  return IsIgnored(path, false);
}

}  // namespace deltafill::client
