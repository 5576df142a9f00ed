// Patterns of .gitignore and .deltafillignore files, with git's meaning: the last pattern that
// matches decides, those of deeper files go before those of shallower ones, and nothing below an
// ignored directory can be had back.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_IGNORE_RULES_H_
#define DELTAFILL_CLIENT_SNAPSHOT_IGNORE_RULES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace deltafill::client {

inline constexpr size_t kIgnoreFileBytesMax = size_t{64} << 10;

class IgnoreRules {
 public:
  // The contents of an ignore file in `directory` ("" is the tree itself, otherwise without slash
  // at the end). Files of one directory add up in the order they are given.
  void Add(const std::string& directory, std::string_view contents);

  // Whether the rules say so of this path itself, its parents aside.
  bool IsIgnored(std::string_view path, bool is_directory) const;
  // Of the path or of a directory above it.
  bool IsIgnoredWithParents(std::string_view path) const;

 private:
  struct Rule {
    std::vector<std::string> names;  // the pattern, split at slashes
    bool anchored = false;           // to the rule's directory; otherwise one name at any depth
    bool directories_only = false;
    bool negated = false;
  };
  static bool Matches(const Rule& rule, std::string_view below, bool is_directory);

  std::map<std::string, std::vector<Rule>, std::less<>> rules_;  // by directory
};

// A name against a pattern with *, ?, [...] and backslashes. At most pattern * name steps.
bool MatchesName(std::string_view pattern, std::string_view name);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_IGNORE_RULES_H_
