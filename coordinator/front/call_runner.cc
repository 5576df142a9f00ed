#include "coordinator/front/call_runner.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/front/limits.h"
#include "coordinator/front/log.h"
#include "proto/status_conversion.h"

namespace deltafill::coordinator {
namespace {

CallMetadata ReadMetadata(const grpc::ServerContext& server_context) {
  CallMetadata metadata;
  for (const auto& [name, value] : server_context.client_metadata()) {
    metadata.emplace(std::string(name.data(), name.size()),
                     std::string(value.data(), value.size()));
  }
  return metadata;
}

}  // namespace

grpc::Status CallRunner::Run(grpc::ServerContext* server_context,
                             absl::FunctionRef<absl::Status(const Call&)> operation) const {
  absl::StatusOr<std::string> tenant = resolver_.Resolve(ReadMetadata(*server_context));
  if (!tenant.ok()) return ToGrpcStatus(tenant.status());
  Call call;
  call.tenant = *std::move(tenant);
  call.cancelled = [this, server_context] { return stopping_ || server_context->IsCancelled(); };
  absl::Status status;
  try {
    status = operation(call);
  } catch (const std::exception& exception) {
    // No exceptions of our own; this is memory running out, or a library's.
    LogError(absl::StrCat("a call failed with an exception: ", exception.what()));
    status = absl::InternalError("the call failed inside the service");
  }
  if (status.ok()) return grpc::Status::OK;
  if (absl::IsInternal(status) || absl::IsDataLoss(status)) {
    LogError(absl::StrCat("a call of tenant ", call.tenant, " failed: ", status.ToString()));
  }
  if (absl::IsResourceExhausted(status)) AddRetryDelay(server_context);
  if (absl::IsUnavailable(status)) status = WithLastLoss(status);
  if (stopping_ && absl::IsCancelled(status)) {
    status = absl::UnavailableError("the service is stopping; retrying is safe");
  }
  return ToGrpcStatus(status);
}

// Where nobody is left to compute, how the last one was lost.
absl::Status CallRunner::WithLastLoss(const absl::Status& status) const {
  if (!context_.engine.Models().empty()) return status;
  const std::string loss = context_.engine.LastLoss();
  const std::string message(status.message());
  if (loss.empty() || message.find(loss) != std::string::npos) return status;
  return absl::UnavailableError(absl::StrCat(message, "; ", loss));
}

// Longer, the more prompts wait already.
void CallRunner::AddRetryDelay(grpc::ServerContext* server_context) const {
  const int64_t delay_ms =
      std::clamp(kRetryDelayMsMin * (1 + int64_t{context_.engine.PromptsQueued()}),
                 kRetryDelayMsMin, kRetryDelayMsMax);
  server_context->AddTrailingMetadata("retry-delay-ms", std::to_string(delay_ms));
}

}  // namespace deltafill::coordinator
