// SIGINT and SIGTERM, received by one thread that waits for them.
#ifndef DELTAFILL_CLIENT_TERMINATION_H_
#define DELTAFILL_CLIENT_TERMINATION_H_

namespace deltafill::client {

// Before the process starts its first thread: the signals then wait for WaitForTermination.
void HoldTerminationSignals();

// Blocks until SIGINT or SIGTERM. From then on a second one ends the process at once.
void WaitForTermination();

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_TERMINATION_H_
