// A checkpoint's tensors, wherever its files split them: one model.safetensors, shards named by
// model.safetensors.index.json, or shards without an index.
#ifndef DELTAFILL_WORKER_MODEL_CHECKPOINT_H_
#define DELTAFILL_WORKER_MODEL_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/model/mapped_file.h"
#include "worker/model/safetensors.h"

namespace deltafill::worker {

struct CheckpointTensor {
  TensorEntry entry;
  const MappedFile* file = nullptr;
  std::span<const std::byte> bytes() const {
    return file->bytes().subspan(entry.begin, entry.end - entry.begin);
  }
};

// Files are mapped, not read. Immutable and thread-safe.
class Checkpoint {
 public:
  // NOT_FOUND if there are no safetensors files; DATA_LOSS naming file and tensor for a corrupt
  // one, a shard or tensor the index promises that is missing, or a tensor in two files.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  const std::map<std::string, CheckpointTensor>& tensors() const { return tensors_; }
  const std::vector<std::unique_ptr<MappedFile>>& files() const { return files_; }
  uint64_t TensorBytes() const;  // of all

  // DATA_LOSS naming directory and tensor if there is none of that name.
  absl::StatusOr<const CheckpointTensor*> Get(const std::string& name) const;

 private:
  Checkpoint() = default;
  absl::Status OpenIndexed(const std::string& index_path);
  absl::Status OpenShard(const std::string& file_name,
                         const std::map<std::string, std::string>* index);

  std::string directory_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, CheckpointTensor> tensors_;
};

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_MODEL_CHECKPOINT_H_
