#include "client/snapshot/snapshot_calls.h"

#include <utility>

#include "client/progress_bar.h"
#include "proto/status_conversion.h"

namespace deltafill::client {
namespace {

constexpr size_t kChunkTokens = (size_t{1} << 20) / sizeof(uint32_t);
constexpr int kSegmentsAMessage = 1000;

// Sends tokens in messages of kChunkTokens.
class TokenSender {
 public:
  using Stream = grpc::ClientReaderWriter<v1::PutSnapshotRequest, v1::PutSnapshotEvent>;
  explicit TokenSender(Stream* stream) : stream_(stream) {}

  // False if the service has ended the call.
  bool Add(const std::vector<uint32_t>& tokens) {
    for (size_t at = 0; at < tokens.size();) {
      const size_t count = std::min(tokens.size() - at, kChunkTokens - waiting_.size());
      waiting_.insert(waiting_.end(), tokens.begin() + static_cast<int64_t>(at),
                      tokens.begin() + static_cast<int64_t>(at + count));
      at += count;
      if (waiting_.size() == kChunkTokens && !Flush()) return false;
    }
    return true;
  }

  bool Flush() {
    if (waiting_.empty()) return true;
    v1::PutSnapshotRequest request;
    request.set_tokens(waiting_.data(), waiting_.size() * sizeof(uint32_t));
    waiting_.clear();
    return stream_->Write(request);
  }

 private:
  Stream* const stream_;
  std::vector<uint32_t> waiting_;
};

bool SendSegments(const ComposedSnapshot& snapshot, TokenSender::Stream* stream) {
  v1::PutSnapshotRequest request;
  for (const ComposedSegment& segment : snapshot.segments) {
    v1::SnapshotSegment* message = request.mutable_segments()->add_segments();
    message->set_path(segment.kept.path);
    message->set_content_hash(segment.kept.content_hash);
    message->set_tokens(segment.kept.tokens);
    message->set_change_rate(segment.kept.change_rate);
    message->set_first_change(segment.kept.first_change);
    if (request.segments().segments_size() < kSegmentsAMessage) continue;
    if (!stream->Write(request)) return false;
    request.Clear();
  }
  return !request.has_segments() || stream->Write(request);
}

bool SendAll(const v1::PutSnapshotStart& start, const ComposedSnapshot& snapshot,
             TokenSender::Stream* stream) {
  v1::PutSnapshotRequest first;
  *first.mutable_start() = start;
  if (!stream->Write(first) || !SendSegments(snapshot, stream)) return false;
  TokenSender sender(stream);
  if (!sender.Add(snapshot.header)) return false;
  for (const ComposedSegment& segment : snapshot.segments) {
    if (!sender.Add(segment.tokens)) return false;
  }
  return sender.Flush();
}

}  // namespace

SnapshotCalls::SnapshotCalls(const ServerOptions& server)
    : connection_(server), stub_(v1::SnapshotService::NewStub(connection_.channel())) {}

absl::Status SnapshotCalls::Run(const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  grpc::ClientContext context;
  if (!connection_.Prepare(&context)) return absl::InvalidArgumentError("no token to call with");
  return FromGrpcStatus(call(&context));
}

absl::Status SnapshotCalls::GetTokenizer(const std::string& model,
                                         v1::TokenizerDescription* tokenizer) {
  v1::GetTokenizerRequest request;
  request.set_model(model);
  return Run([&](grpc::ClientContext* context) {
    return stub_->GetTokenizer(context, request, tokenizer);
  });
}

absl::Status SnapshotCalls::Get(const std::string& name, bool with_segments,
                                v1::SnapshotDescription* snapshot) {
  v1::GetSnapshotRequest request;
  request.set_name(name);
  request.set_with_segments(with_segments);
  return Run(
      [&](grpc::ClientContext* context) { return stub_->GetSnapshot(context, request, snapshot); });
}

absl::Status SnapshotCalls::List(const std::string& page, v1::ListSnapshotsResponse* response) {
  v1::ListSnapshotsRequest request;
  request.set_page(page);
  request.set_limit(1000);
  return Run([&](grpc::ClientContext* context) {
    return stub_->ListSnapshots(context, request, response);
  });
}

absl::Status SnapshotCalls::Delete(const std::string& name, v1::DeleteSnapshotResponse* response) {
  v1::DeleteSnapshotRequest request;
  request.set_name(name);
  return Run([&](grpc::ClientContext* context) {
    return stub_->DeleteSnapshot(context, request, response);
  });
}

absl::Status SnapshotCalls::Put(v1::PutSnapshotStart start, const ComposedSnapshot& snapshot,
                                v1::PutSnapshotDone* done) {
  start.set_header_tokens(snapshot.header.size());
  return Run([&](grpc::ClientContext* context) -> grpc::Status {
    {
      const std::lock_guard lock(mutex_);
      if (cancelled_) return grpc::Status(grpc::StatusCode::CANCELLED, "interrupted");
      running_ = context;
    }
    const auto stream = stub_->PutSnapshot(context);
    if (SendAll(start, snapshot, stream.get())) stream->WritesDone();
    v1::PutSnapshotEvent event;
    {
      ProgressBar bar;
      while (stream->Read(&event)) {
        if (event.has_progress()) bar.Show(event.progress());
        if (event.has_done()) *done = std::move(*event.mutable_done());
      }
    }
    const grpc::Status status = stream->Finish();
    const std::lock_guard lock(mutex_);
    running_ = nullptr;
    return status;
  });
}

void SnapshotCalls::Cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (running_ != nullptr) running_->TryCancel();
}

int SnapshotCalls::Fail(const absl::Status& status) const {
  return connection_.Fail(ToGrpcStatus(status));
}

}  // namespace deltafill::client
