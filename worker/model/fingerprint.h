// The model fingerprint (DESIGN section 6): SHA-256 over the architecture and every tensor, so
// equal fingerprints mean the same function of tokens. Independent of paths, files and times.
#ifndef DELTAFILL_WORKER_MODEL_FINGERPRINT_H_
#define DELTAFILL_WORKER_MODEL_FINGERPRINT_H_

#include <string>

#include "statestore/identity.h"
#include "worker/model/checkpoint.h"
#include "worker/model/config.h"
#include "worker/model/load_progress.h"

namespace deltafill::worker {

// Where a directory's fingerprint is kept, with file sizes and modification times as its guard.
inline constexpr char kFingerprintFileName[] = "deltafill_fingerprint.json";

// The fields that the arithmetic depends on, one "key=value" a line, in fixed order and spelling.
std::string CanonicalArchitecture(const ModelConfig& config);

// Reads every byte of the checkpoint, tensors in parallel: about a second a thread for 2 GB once
// they are in memory. How far it has come goes to `log`, which may be empty.
ModelFingerprint ComputeFingerprint(const ModelConfig& config, const Checkpoint& checkpoint,
                                    const LogLine& log = nullptr);

// The cached one if its guard matches; else computes it and caches it if the directory is writable.
ModelFingerprint CachedFingerprint(const ModelConfig& config, const Checkpoint& checkpoint,
                                   const LogLine& log = nullptr);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_FINGERPRINT_H_
