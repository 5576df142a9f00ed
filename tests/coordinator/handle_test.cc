#include "coordinator/front/handle.h"

#include <gtest/gtest.h>

#include <random>

#include "coordinator/front/limits.h"

namespace deltafill::coordinator {
namespace {

PrefixRef RandomRef(std::mt19937& random, size_t tail) {
  PrefixRef ref;
  for (uint8_t& byte : ref.state.bytes) byte = static_cast<uint8_t>(random());
  ref.zero = random() % 2 == 0;
  for (size_t i = 0; i < tail; ++i) ref.tail.push_back(random() >> (random() % 32));
  return ref;
}

TEST(Handle, RoundTripsWithEveryTailLength) {
  std::mt19937 random(1);
  for (size_t tail = 0; tail <= kTailTokensMax; ++tail) {
    const PrefixRef ref = RandomRef(random, tail);
    const std::string handle = EncodePrefixRef(ref);
    EXPECT_LE(handle.size(), kHandleCharsMax);
    EXPECT_EQ(handle.substr(0, 4), "df1.");
    EXPECT_EQ(handle.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                       "0123456789._-"),
              std::string::npos);
    const auto decoded = DecodePrefixRef(handle, "state");
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, ref);
    EXPECT_EQ(*DecodeStateReference(handle, "state"), ref);
  }
}

TEST(Handle, LargestTokensFitTheLimit) {
  PrefixRef ref;
  ref.tail.assign(kTailTokensMax, UINT32_MAX);
  const std::string handle = EncodePrefixRef(ref);
  EXPECT_EQ(handle.size(), kHandleCharsMax);
  EXPECT_EQ(*DecodePrefixRef(handle, "state"), ref);
}

TEST(Handle, EveryMistypedCharacterIsNoticed) {
  std::mt19937 random(2);
  const std::string handle = EncodePrefixRef(RandomRef(random, 5));
  for (size_t i = 0; i < handle.size(); ++i) {
    for (char c : {'A', 'z', '0', '-', '_', '+', '=', '\0', '\xff', '.'}) {
      if (handle[i] == c) continue;
      std::string wrong = handle;
      wrong[i] = c;
      const auto decoded = DecodePrefixRef(wrong, "state");
      ASSERT_FALSE(decoded.ok()) << i;
      // Changing "1" in "df1." to another digit names another version.
      const bool version = i == 2 && c == '0';
      EXPECT_EQ(decoded.status().code(), version ? absl::StatusCode::kFailedPrecondition
                                                 : absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(decoded.status().message().find("state: "), 0u);
      EXPECT_EQ(decoded.status().message().find(handle.substr(4, 10)), std::string::npos)
          << "a handle must not be repeated in a message";
    }
  }
}

TEST(Handle, EveryCutAndEveryAdditionIsNoticed) {
  std::mt19937 random(3);
  const std::string handle = EncodePrefixRef(RandomRef(random, 7));
  for (size_t size = 0; size < handle.size(); ++size) {
    EXPECT_FALSE(DecodePrefixRef(handle.substr(0, size), "state").ok()) << size;
  }
  for (const char* more : {"A", "AA", "AAA", "AAAA", "=", "\n", " "}) {
    EXPECT_FALSE(DecodePrefixRef(handle + more, "state").ok()) << more;
  }
  EXPECT_FALSE(DecodePrefixRef(handle + std::string(10000, 'A'), "state").ok());
}

TEST(Handle, DecodesOnlyWhatItEncodes) {
  // Whatever random text decodes, encodes to the same text.
  std::mt19937 random(4);
  for (int round = 0; round < 20000; ++round) {
    std::string text = EncodePrefixRef(RandomRef(random, random() % 3));
    for (int change = 0; change < 2; ++change) {
      text[4 + random() % (text.size() - 4)] = "ABCabc019-_"[random() % 11];
    }
    const auto decoded = DecodePrefixRef(text, "state");
    if (!decoded.ok()) continue;
    EXPECT_EQ(EncodePrefixRef(*decoded), text);
  }
}

TEST(Handle, OtherFormatVersionsAreNamed) {
  for (const char* text : {"df2.AAAA", "df10.AAAA", "st2.00"}) {
    const auto decoded = DecodeStateReference(text, "state");
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kFailedPrecondition) << text;
    EXPECT_NE(decoded.status().message().find("reads version 1"), std::string::npos);
  }
}

TEST(Handle, StateNames) {
  std::mt19937 random(5);
  const PrefixRef ref = RandomRef(random, 0);
  const std::string name = EncodeStateName(ref.state);
  EXPECT_EQ(name.size(), 4u + 64u);
  const auto decoded = DecodeStateReference(name, "state");
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->state, ref.state);
  EXPECT_FALSE(decoded->zero);
  EXPECT_TRUE(decoded->tail.empty());
  EXPECT_FALSE(DecodeStateReference(name.substr(1), "state").ok());
  EXPECT_FALSE(DecodeStateReference(name + "0", "state").ok());
  EXPECT_FALSE(DecodeStateReference("st1." + std::string(64, 'g'), "state").ok());
  EXPECT_FALSE(DecodeStateReference("st1." + std::string(64, 'A'), "state").ok());
  EXPECT_FALSE(DecodeStateReference("", "state").ok());
  EXPECT_FALSE(DecodePrefixRef(name, "state").ok()) << "a state name is not a handle";
}

}  // namespace
}  // namespace deltafill::coordinator
