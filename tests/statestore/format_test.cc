// Formats against constants that golden_digests.py computed, and against damage.
#include <gtest/gtest.h>

#include <numeric>

#include "statestore/part.h"
#include "statestore/prefix_key.h"
#include "statestore/records.h"
#include "tests/statestore/store_fixture.h"

namespace deltafill {
namespace {

template <typename AnyDigest>
AnyDigest Counting(uint8_t first) {
  AnyDigest digest;
  std::iota(digest.bytes.begin(), digest.bytes.end(), first);
  return digest;
}

std::string ToHex(std::string_view raw) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (uint8_t byte : raw) hex.append({kDigits[byte >> 4], kDigits[byte & 15]});
  return hex;
}

StateId GoldenRoot() {
  return RootKey(Counting<ModelFingerprint>(0), HashNumerics("cpu/fp32/test"),
                 Counting<TenantSalt>(100));
}

TEST(PrefixKey, MatchesIndependentDigests) {
  EXPECT_EQ(HashNumerics("cpu/fp32/test").ToHex(),
            "6d3af67662147a9ca99c72898eb8bcb414a8467dc143b1745664f7bb25f15f05");
  EXPECT_EQ(GoldenRoot().ToHex(),
            "4dce62361852fc1a048a4a544e2b7725eec45664788024a7dea1b93183849a02");
  std::vector<uint32_t> tokens;
  for (uint32_t block = 0; block < 3; ++block) {
    for (uint32_t i = 0; i < 64; ++i) tokens.push_back(block * 64 + i * 7);
  }
  tokens.push_back(1);  // no whole block: has no key
  const std::vector<StateId> chain = KeyChain(GoldenRoot(), tokens);
  ASSERT_EQ(chain.size(), 3u);
  EXPECT_EQ(chain[0].ToHex(), "e1dee76f041e4cbebb2211af39b378c80e9013f4a3940b43608afd340241657c");
  EXPECT_EQ(chain[1].ToHex(), "39b5b0dbe4d1ff373c22f759347b8a8e7b02e0806079e9d7201589f8ad0d6310");
  EXPECT_EQ(chain[2].ToHex(), "e4d450ea27abf2627b676f51f49c982179ec99babe90012fe080db6c4cef2279");
  EXPECT_EQ(NextKey(chain[1], std::span(tokens).subspan<128, 64>()), chain[2]);
  EXPECT_EQ(KeyChain(chain[0], std::span(tokens).subspan(64)),
            (std::vector<StateId>{chain[1], chain[2]}));
}

TEST(PrefixKey, DependsOnEveryIngredient) {
  const ModelFingerprint fingerprint = Counting<ModelFingerprint>(0);
  const TenantSalt salt = Counting<TenantSalt>(100);
  const StateId root = GoldenRoot();
  EXPECT_NE(RootKey(Counting<ModelFingerprint>(1), HashNumerics("cpu/fp32/test"), salt), root);
  EXPECT_NE(RootKey(fingerprint, HashNumerics("cpu/fp32/test2"), salt), root);
  EXPECT_NE(RootKey(fingerprint, HashNumerics("cpu/fp32/test"), Counting<TenantSalt>(101)), root);
  std::vector<uint32_t> tokens(128, 9);
  const std::vector<StateId> before = KeyChain(root, tokens);
  tokens[0] = 10;
  const std::vector<StateId> after = KeyChain(root, tokens);
  EXPECT_NE(before[0], after[0]);
  EXPECT_NE(before[1], after[1]) << "a key must depend on all blocks before it";
}

struct GoldenPart {
  GoldenPart() {
    header.layers = {3, 17};
    header.shape = {1, 2, 3, 1};
    header.first_token = 4096;
    for (int i = 0; i < 24; ++i) first.push_back(static_cast<std::byte>(i * 5 + 1));
    for (int i = 0; i < 24; ++i) second.push_back(static_cast<std::byte>(i * 11 + 2));
    payloads = {first, second};
  }
  PartHeader header;
  std::vector<std::byte> first, second;
  std::vector<std::span<const std::byte>> payloads;
};

constexpr char kGoldenHeader[] =
    "44465054010001000100000002000000010000000200000003000000010000000010000000000000000000000000"
    "000018000000000000000300000011000000d6f9db1efc541e1bb4e1738672774ed6417e310359876d6c";

TEST(PartFormat, MatchesIndependentBytes) {
  const GoldenPart part;
  const absl::StatusOr<std::string> encoded = EncodePartHeader(part.header, part.payloads);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_EQ(ToHex(*encoded), kGoldenHeader);
  EXPECT_EQ(encoded->size(), part.header.HeaderBytes());
  EXPECT_EQ(ComputePartId(Counting<TenantSalt>(100), *encoded, part.payloads).ToHex(),
            "3a9d7f4c716caf14d52afae000886ca1555a9186a7c4f7fed1716bfe12391a1d");
  const absl::StatusOr<DecodedPart> decoded = DecodePartHeader(*encoded + "payload");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->header, part.header);
  EXPECT_EQ(decoded->payload_offset, encoded->size());
  EXPECT_TRUE(VerifyPartLayer(*decoded, 0, part.first).ok());
  EXPECT_TRUE(VerifyPartLayer(*decoded, 1, part.second).ok());
  const absl::Status swapped = VerifyPartLayer(*decoded, 1, part.first);
  EXPECT_TRUE(absl::IsDataLoss(swapped));
  EXPECT_NE(std::string(swapped.message()).find("layer 17"), std::string::npos) << swapped;
}

TEST(PartFormat, EveryFlippedBitAndEveryCutIsNoticed) {
  const GoldenPart part;
  const std::string encoded = *EncodePartHeader(part.header, part.payloads);
  for (size_t bit = 0; bit < encoded.size() * 8; ++bit) {
    std::string damaged = encoded;
    damaged[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    EXPECT_TRUE(absl::IsDataLoss(DecodePartHeader(damaged).status())) << "bit " << bit;
  }
  for (size_t size = 0; size < encoded.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(DecodePartHeader(encoded.substr(0, size)).status())) << size;
  }
}

TEST(PartFormat, RefusesWhatBreaksALimit) {
  const GoldenPart good;
  const auto refused = [&](auto change, const std::string& field) {
    PartHeader header = good.header;
    change(header);
    const absl::Status status = EncodePartHeader(header, good.payloads).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << field;
    EXPECT_NE(std::string(status.message()).find(field), std::string::npos) << status;
  };
  refused([](PartHeader& h) { h.kind = static_cast<PartKind>(9); }, "kind");
  refused([](PartHeader& h) { h.dtype = static_cast<PartDType>(9); }, "dtype");
  refused([](PartHeader& h) { h.layers = {}; }, "layers");
  refused([](PartHeader& h) { h.layers = {3, 3}; }, "layers");
  refused([](PartHeader& h) { h.layers.resize(kPartLayersMax + 1); }, "layers");
  refused([](PartHeader& h) { h.layers = {3, 17, 18}; }, "payloads");
  refused([](PartHeader& h) { h.shape[2] = 0; }, "shape");
  refused([](PartHeader& h) { h.shape = {1u << 31, 1u << 31, 1u << 31, 1u << 31}; }, "shape");
  refused([](PartHeader& h) { h.shape = {1u << 28, 1, 1, 1}; }, "shape");
  refused([](PartHeader& h) { h.shape[2] = 4; }, "payload of layer 3");
  refused([](PartHeader& h) { h.token_count = 5; }, "token_count");
  refused([](PartHeader& h) { h.kind = PartKind::kLatent; }, "token_count");
}

Manifest GoldenManifest() {
  PartReceipt receipt;
  receipt.id = Counting<PartId>(7);
  receipt.bytes = 1000;
  Manifest manifest = testing::SampleManifest("acme", Counting<StateId>(9), 128, {receipt});
  manifest.root = Counting<StateId>(50);
  manifest.fingerprint = Counting<ModelFingerprint>(60);
  manifest.pinned = true;
  return manifest;
}

TEST(ManifestFormat, SurvivesTheRoundTrip) {
  const Manifest manifest = GoldenManifest();
  const absl::StatusOr<Manifest> decoded = DecodeManifest(EncodeManifest(manifest));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->state, manifest.state);
  EXPECT_EQ(decoded->tenant, manifest.tenant);
  EXPECT_EQ(decoded->fingerprint, manifest.fingerprint);
  EXPECT_EQ(decoded->numerics, manifest.numerics);
  EXPECT_EQ(decoded->boundary, manifest.boundary);
  EXPECT_EQ(decoded->root, manifest.root);
  EXPECT_EQ(decoded->parts, manifest.parts);
  EXPECT_EQ(decoded->created_unix_ms, manifest.created_unix_ms);
  EXPECT_TRUE(decoded->pinned);
}

TEST(ManifestFormat, EveryFlippedBitAndEveryCutIsNoticed) {
  const std::string encoded = EncodeManifest(GoldenManifest());
  for (size_t bit = 0; bit < encoded.size() * 8; ++bit) {
    std::string damaged = encoded;
    damaged[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    EXPECT_TRUE(absl::IsDataLoss(DecodeManifest(damaged).status())) << "bit " << bit;
  }
  for (size_t size = 0; size < encoded.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeManifest(encoded.substr(0, size)).status())) << size;
  }
}

}  // namespace
}  // namespace deltafill
