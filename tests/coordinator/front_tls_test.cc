// TLS on the client port, with a certificate made here.
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <filesystem>
#include <fstream>

#include "tests/coordinator/front_fixture.h"

namespace deltafill::coordinator {
namespace {

struct Pair {
  std::string certificate;
  std::string key;
};

std::string Contents(BIO* bio) {
  char* start = nullptr;
  const long size = BIO_get_mem_data(bio, &start);
  std::string text(start, static_cast<size_t>(size));
  BIO_free_all(bio);
  return text;
}

// A self-signed certificate for 127.0.0.1, valid for an hour.
Pair MakePair() {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_NAME* const name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_EXTENSION* const names =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
  X509_add_ext(certificate, names, -1);
  X509_EXTENSION_free(names);
  X509_set_pubkey(certificate, key);
  X509_sign(certificate, key, EVP_sha256());
  BIO* const certificate_out = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(certificate_out, certificate);
  BIO* const key_out = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(key_out, key, nullptr, nullptr, 0, nullptr, nullptr);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return {Contents(certificate_out), Contents(key_out)};
}

class FrontTlsTest : public FrontTest {
 protected:
  void SetUp() override {
    FrontTest::SetUp();
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    pair_ = MakePair();
    files_ = {Write("certificate.pem", pair_.certificate), Write("key.pem", pair_.key)};
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    FrontTest::TearDown();
  }

  std::string Write(const std::string& name, const std::string& contents) const {
    std::ofstream(folder_ / name) << contents;
    return folder_ / name;
  }

  // The first words of the error.
  std::string Refusal(const TlsFiles& files) const {
    const auto started = StartFrontServer({"127.0.0.1:0", nullptr, files}, *store_, *engine_);
    EXPECT_EQ(started.status().code(), absl::StatusCode::kInvalidArgument) << started.status();
    return std::string(started.status().message());
  }

  std::filesystem::path folder_;
  Pair pair_;
  TlsFiles files_;
};

TEST_F(FrontTlsTest, ServesThoseWhoTrustTheCertificateAndNobodyElse) {
  auto server = StartFrontServer({"127.0.0.1:0", nullptr, files_}, *store_, *engine_);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto ask = [&](const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    const auto stub =
        v1::PrefillService::NewStub(grpc::CreateChannel((*server)->address(), credentials));
    v1::ServerInfo served;
    return stub->GetServerInfo(By("default").get(), {}, &served).error_code();
  };
  EXPECT_EQ(ask(grpc::SslCredentials({.pem_root_certs = pair_.certificate})), grpc::StatusCode::OK);
  EXPECT_EQ(ask(grpc::SslCredentials({.pem_root_certs = MakePair().certificate})),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ask(grpc::InsecureChannelCredentials()), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(FrontTlsTest, FilesThatAreRefused) {
  EXPECT_EQ(Refusal({files_.certificate, ""}),
            "tls key: is missing; certificate and key go together");
  EXPECT_EQ(Refusal({"", files_.key}),
            "tls certificate: is missing; certificate and key go together");
  const std::string absent = folder_ / "absent.pem";
  EXPECT_EQ(Refusal({absent, files_.key}), "tls certificate: " + absent + " cannot be read");
  const std::string text = Write("text.pem", "not a certificate");
  EXPECT_EQ(Refusal({text, files_.key}), "tls certificate: " + text + " has no PEM certificate");
  EXPECT_EQ(Refusal({files_.certificate, text}),
            "tls key: " + text + " has no PEM private key without a passphrase");
  const std::string other = Write("other.pem", MakePair().key);
  EXPECT_EQ(Refusal({files_.certificate, other}),
            "tls key: " + other + " is not the key of " + files_.certificate);
}

}  // namespace
}  // namespace deltafill::coordinator
