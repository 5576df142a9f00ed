// Who is attached: names, numbers and what workers said of themselves.
#ifndef DELTAFILL_COORDINATOR_WORKERS_REGISTRY_H_
#define DELTAFILL_COORDINATOR_WORKERS_REGISTRY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/scheduler/orders.h"

namespace deltafill::coordinator {

inline constexpr uint32_t kWorkerProtocol = 2;
inline constexpr size_t kWorkerNameBytesMax = 128;
inline constexpr size_t kWorkersMax = 1024;

// Not thread-safe: the engine thread's.
class WorkerRegistry {
 public:
  // Gives the worker its number. FAILED_PRECONDITION: another protocol version. INVALID_ARGUMENT
  // naming the field: a name in use, empty or too long, a model that is incomplete or differs from
  // what another worker says of the same fingerprint, impossible costs. RESOURCE_EXHAUSTED:
  // kWorkersMax.
  absl::StatusOr<WorkerProfile> Add(uint32_t protocol, WorkerProfile profile);

  void Remove(WorkerNumber worker);

  std::optional<WorkerNumber> Find(const std::string& name) const;
  const WorkerProfile* Find(WorkerNumber worker) const;  // nullptr if it is not attached

 private:
  std::map<WorkerNumber, WorkerProfile> profiles_;
  std::map<std::string, WorkerNumber> numbers_;
  WorkerNumber last_ = 0;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_WORKERS_REGISTRY_H_
