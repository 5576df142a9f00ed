// The calls of SnapshotService that the commands make.
#ifndef DELTAFILL_CLIENT_SNAPSHOT_SNAPSHOT_CALLS_H_
#define DELTAFILL_CLIENT_SNAPSHOT_SNAPSHOT_CALLS_H_

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "client/connection.h"
#include "client/snapshot/composed_snapshot.h"
#include "proto/snapshot.grpc.pb.h"

namespace deltafill::client {

class SnapshotCalls {
 public:
  explicit SnapshotCalls(const ServerOptions& server);

  absl::Status GetTokenizer(const std::string& model, v1::TokenizerDescription* tokenizer);
  absl::Status Get(const std::string& name, bool with_segments, v1::SnapshotDescription* snapshot);
  absl::Status List(const std::string& page, v1::ListSnapshotsResponse* response);
  absl::Status Delete(const std::string& name, v1::DeleteSnapshotResponse* response);
  // start.header_tokens is filled in. Shows progress on a terminal.
  absl::Status Put(v1::PutSnapshotStart start, const ComposedSnapshot& snapshot,
                   v1::PutSnapshotDone* done);

  // From any thread: ends the Put that runs, and every later one.
  void Cancel();

  // Prints the error; returns the exit code.
  int Fail(const absl::Status& status) const;

 private:
  absl::Status Run(const std::function<grpc::Status(grpc::ClientContext*)>& call);

  Connection connection_;
  std::unique_ptr<v1::SnapshotService::Stub> stub_;
  std::mutex mutex_;
  grpc::ClientContext* running_ = nullptr;  // under mutex_
  bool cancelled_ = false;                  // under mutex_
};

}  // namespace deltafill::client

#endif  // DELTAFILL_CLIENT_SNAPSHOT_SNAPSHOT_CALLS_H_
