// What the parts of the command line share. Includes CLI11: for cli*.cc alone.
#ifndef DELTAFILL_CLIENT_CLI_VERB_H_
#define DELTAFILL_CLIENT_CLI_VERB_H_

#include <functional>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"

namespace deltafill::client {

// More than a century; what is beyond it is a slip, and its message would be long.
inline constexpr double kSecondsMax = 1e10;
inline CLI::Range Seconds() { return CLI::Range(0.0, kSecondsMax, "SECONDS"); }

// Of options without an upper bound: CLI11 takes -1 for the largest number there is.
inline CLI::Validator NotNegative() {
  return CLI::Validator(
      [](const std::string& text) {
        return text.starts_with("-") ? "must not be negative, is " + text : std::string();
      },
      "");
}

// The command that parsing chose; run after parsing so that nothing starts on bad arguments.
using Chosen = std::function<int()>;

// Makes a verb whose options live as long as the app and which runs `command` with them.
template <typename Options>
Options* AddVerb(CLI::App* parent, const std::string& name, const std::string& help,
                 int (*command)(const Options&), Chosen* chosen, CLI::App** verb) {
  auto options = std::make_shared<Options>();
  *verb = parent->add_subcommand(name, help);
  (*verb)->callback(
      [options, command, chosen] { *chosen = [options, command] { return command(*options); }; });
  return options.get();
}

// The verbs that run roles: serve; coordinator, worker, statestore.
void AddServe(CLI::App* app, Chosen* chosen);
void AddRoles(CLI::App* app, Chosen* chosen);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_CLI_VERB_H_
