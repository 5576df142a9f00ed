// Error type of the kernels library, which depends on nothing but the C++ standard library.
#ifndef DELTAFILL_KERNELS_STATUS_H_
#define DELTAFILL_KERNELS_STATUS_H_

#include <string>
#include <utility>

namespace deltafill::kernels {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // The params struct breaks a limit; the message names the field and the limit.
  kUnsupported,      // A legal request this backend does not implement on this device.
  kResourceExhausted,  // An allocation failed; the message gives the size in bytes.
  kInternal,           // The device or a library reported an error.
};

// Immutable and cheap to copy when OK. A failed operator leaves its outputs unspecified.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}
  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

}  // namespace deltafill::kernels

#endif  // DELTAFILL_KERNELS_STATUS_H_
