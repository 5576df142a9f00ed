// The command line: parses argv and runs the verb.
#ifndef DELTAFILL_CLIENT_CLI_H_
#define DELTAFILL_CLIENT_CLI_H_

namespace deltafill::client {

// The exit code of the verb; 2 for arguments that cannot be understood.
int RunCommandLine(int argc, char** argv);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_CLI_H_
