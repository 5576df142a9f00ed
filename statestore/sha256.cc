#include "statestore/sha256.h"

#include <openssl/evp.h>

#include <new>

namespace deltafill {
namespace {

EVP_MD_CTX* Context(void* context) { return static_cast<EVP_MD_CTX*>(context); }

// Fetched once and never freed: a fetch costs more than hashing a block.
const EVP_MD* Algorithm() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return algorithm;
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr || Algorithm() == nullptr) {
    EVP_MD_CTX_free(Context(context_));
    throw std::bad_alloc();
  }
  Start();
}

Sha256::~Sha256() { EVP_MD_CTX_free(Context(context_)); }

void Sha256::Start() { EVP_DigestInit_ex(Context(context_), Algorithm(), nullptr); }

void Sha256::Update(std::span<const std::byte> piece) {
  EVP_DigestUpdate(Context(context_), piece.data(), piece.size());
}

std::array<uint8_t, 32> Sha256::Finish() {
  std::array<uint8_t, 32> digest;
  EVP_DigestFinal_ex(Context(context_), digest.data(), nullptr);
  Start();
  return digest;
}

}  // namespace deltafill
