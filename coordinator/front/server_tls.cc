#include "coordinator/front/server_tls.h"

#include <grpcpp/security/server_credentials.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace deltafill::coordinator {
namespace {

template <typename Object, void (*kFree)(Object*)>
struct Freed {
  void operator()(Object* object) const { kFree(object); }
};
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using Bytes = std::unique_ptr<BIO, Freed<BIO, BIO_free_all>>;

absl::StatusOr<std::string> ReadFile(const char* field, const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": is missing; certificate and key go together"));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  if (!(contents << file.rdbuf())) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", path, " cannot be read"));
  }
  return contents.str();
}

Bytes InMemory(const std::string& pem) {
  return Bytes(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// gRPC itself would only say that the port cannot be had.
absl::Status CheckPair(const TlsFiles& files, const std::string& chain, const std::string& key) {
  const Certificate certificate(
      PEM_read_bio_X509(InMemory(chain).get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("tls certificate: ", files.certificate, " has no PEM certificate"));
  }
  const PrivateKey parsed(PEM_read_bio_PrivateKey(InMemory(key).get(), nullptr, nullptr, nullptr));
  if (parsed == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("tls key: ", files.key, " has no PEM private key without a passphrase"));
  }
  if (X509_check_private_key(certificate.get(), parsed.get()) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tls key: ", files.key, " is not the key of ", files.certificate));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> LoadServerCredentials(
    const TlsFiles& files) {
  if (files.certificate.empty() && files.key.empty()) return grpc::InsecureServerCredentials();
  absl::StatusOr<std::string> chain = ReadFile("tls certificate", files.certificate);
  if (!chain.ok()) return chain.status();
  absl::StatusOr<std::string> key = ReadFile("tls key", files.key);
  if (!key.ok()) return key.status();
  absl::Status status = CheckPair(files, *chain, *key);
  if (!status.ok()) return status;
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({*std::move(key), *std::move(chain)});
  return grpc::SslServerCredentials(options);
}

}  // namespace deltafill::coordinator
