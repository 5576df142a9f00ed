// SHA-256 over pieces, one reusable context an instance. Not thread-safe; one instance a thread.
#ifndef DELTAFILL_STATESTORE_SHA256_H_
#define DELTAFILL_STATESTORE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace deltafill {

class Sha256 {
 public:
  // Throws std::bad_alloc when memory is out.
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(std::span<const std::byte> piece);
  void Update(std::string_view piece) { Update(std::as_bytes(std::span(piece))); }

  // The digest of everything since the last Finish; starts over.
  std::array<uint8_t, 32> Finish();

 private:
  void Start();

  void* context_;  // EVP_MD_CTX
};

}  // namespace deltafill

#endif  // DELTAFILL_STATESTORE_SHA256_H_
