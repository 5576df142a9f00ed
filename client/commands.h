// One function a verb; each returns the process's exit code: 0 done, 1 failed, 2 bad arguments.
// Results go to standard output, everything else to standard error.
#ifndef DELTAFILL_CLIENT_COMMANDS_H_
#define DELTAFILL_CLIENT_COMMANDS_H_

#include "client/options.h"

namespace deltafill::client {

int RunPrefill(const PrefillOptions& options);
int RunLookup(const LookupOptions& options);
int RunDecode(const DecodeOptions& options);

int RunStateList(const StateListOptions& options);
int RunStateShow(const StateOptions& options);
int RunStateVerify(const StateOptions& options);
int RunStatePin(const StateOptions& options);
int RunStateUnpin(const StateOptions& options);
int RunStateDelete(const StateOptions& options);
int RunStateFetch(const StateFetchOptions& options);
int RunStatus(const StatusOptions& options);

int RunSnapshotCreate(const SnapshotPutOptions& options);
int RunSnapshotUpdate(const SnapshotPutOptions& options);
int RunSnapshotShow(const SnapshotOptions& options);
int RunSnapshotList(const SnapshotListOptions& options);
int RunSnapshotDelete(const SnapshotOptions& options);
int RunSnapshotAsk(const SnapshotAskOptions& options);

int RunModelInit(const ModelInitOptions& options);
int RunModelInspect(const ModelInspectOptions& options);

int RunServe(const ServeOptions& options);
int RunCoordinator(const CoordinatorOptions& options);
int RunWorker(const WorkerOptions& options);
int RunStateStore(const StateStoreOptions& options);

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_COMMANDS_H_
