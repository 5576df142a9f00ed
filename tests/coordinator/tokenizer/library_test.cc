// Token by token against what tiktoken and tokenizers gave for the fixtures (make_fixtures.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "coordinator/tokenizer/tokenizer.h"

namespace deltafill::coordinator {
namespace {

using Ids = std::vector<uint32_t>;

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream.good()) << path;
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string Fixture(const std::string& name) {
  return ReadFile(std::string(DELTAFILL_TOKENIZER_FIXTURES) + "/" + name);
}

std::vector<std::string> TextNames() {
  std::vector<std::string> names;
  const std::string folder = std::string(DELTAFILL_TOKENIZER_FIXTURES) + "/texts";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

std::shared_ptr<const Tokenizer> Make(const std::string& folder) {
  std::string kind = "huggingface";
  std::string contents;
  if (folder == "kimi") {
    kind = "tiktoken";
    const std::string config = Fixture("kimi/tokenizer_config.json");
    contents = "deltafill.tiktoken.1\n" + std::to_string(config.size()) + "\n" + config +
               Fixture("kimi/tiktoken.model");
  } else {
    contents = Fixture(folder + "/tokenizer.json");
  }
  auto tokenizer = NewTokenizer(kind, contents);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

Ids ParseIds(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<uint32_t>(stream), std::istream_iterator<uint32_t>()};
}

Ids Encode(const Tokenizer& tokenizer, const std::string& text, bool allow_special) {
  const auto ids = tokenizer.Encode(text, allow_special);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : Ids();
}

std::string Decode(const Tokenizer& tokenizer, const Ids& ids) {
  const auto decoder = tokenizer.NewDecoder();
  std::string text;
  for (const uint32_t id : ids) text += decoder->Push(id);
  return text;
}

class LibraryTest : public testing::TestWithParam<const char*> {};

TEST_P(LibraryTest, EveryTokenIsTheSame) {
  const std::string folder = GetParam();
  const auto tokenizer = Make(folder);
  ASSERT_NE(tokenizer, nullptr);
  size_t compared = 0;
  for (const std::string& name : TextNames()) {
    SCOPED_TRACE(name);
    const std::string text = Fixture("texts/" + name);
    std::istringstream expected(Fixture(folder + "/" + name + ".ids"));
    std::string plain, special;
    std::getline(expected, plain);
    std::getline(expected, special);
    if (special == "=") special = plain;
    ASSERT_FALSE(plain.empty());
    EXPECT_THAT(Encode(*tokenizer, text, false), testing::ElementsAreArray(ParseIds(plain)));
    EXPECT_THAT(Encode(*tokenizer, text, true), testing::ElementsAreArray(ParseIds(special)));
    compared += ParseIds(plain).size();
  }
  EXPECT_GT(compared, 5000u);
}

// Nothing is lost: not even bytes that are not UTF-8. (Of the others "prefix" adds a space, "qwen"
// normalises, "digits" drops line ends.)
class RoundTripTest : public testing::TestWithParam<const char*> {};

TEST_P(RoundTripTest, DecodingGivesTheTextBack) {
  const std::string folder = GetParam();
  const auto tokenizer = Make(folder);
  ASSERT_NE(tokenizer, nullptr);
  for (const std::string& name : TextNames()) {
    const std::string text = Fixture("texts/" + name);
    EXPECT_EQ(Decode(*tokenizer, Encode(*tokenizer, text, false)), text) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, LibraryTest,
                         testing::Values("kimi", "gpt2", "prefix", "llama", "qwen", "digits"),
                         [](const auto& folder) { return std::string(folder.param); });

INSTANTIATE_TEST_SUITE_P(Vocabularies, RoundTripTest, testing::Values("kimi", "gpt2", "llama"));

TEST(SpecialTokens, AreFoundLongestFirstWhereTheyAreAllowedAndAddNoText) {
  const auto tokenizer = Make("llama");
  ASSERT_NE(tokenizer, nullptr);
  const Ids ids = Encode(*tokenizer, "<|im_end|>x[EOS]", true);
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_NE(ids[0], Encode(*tokenizer, "<|im_end|>", true)[0]);
  EXPECT_EQ(Decode(*tokenizer, ids), "");
  EXPECT_GT(Encode(*tokenizer, "<|im_end|>x[EOS]", false).size(), 4u);
}

TEST(SpecialTokens, UnknownIdsAddNoText) {
  for (const char* folder : {"kimi", "llama"}) {
    const auto tokenizer = Make(folder);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(Decode(*tokenizer, {5000, 4000000000}), "") << folder;
  }
}

// <think> is flagged as not special: decoding shows it.
TEST(SpecialTokens, ThoseThatTheConfigurationDoesNotFlagAreShown) {
  const auto tokenizer = Make("kimi");
  ASSERT_NE(tokenizer, nullptr);
  const Ids ids = Encode(*tokenizer, "<think>", true);
  ASSERT_EQ(ids.size(), 1u);
  EXPECT_EQ(Decode(*tokenizer, ids), "<think>");
  EXPECT_GT(Encode(*tokenizer, "<think>", false).size(), 1u);
}

// One token for each byte of a character: the decoder hands bytes on as they come.
TEST(Decoding, MayStopInsideACharacter) {
  const auto tokenizer = Make("kimi");
  ASSERT_NE(tokenizer, nullptr);
  const std::string text = "\xF0\x9D\x94\x84";  // too rare to be a token of its own
  const Ids ids = Encode(*tokenizer, text, false);
  ASSERT_GT(ids.size(), 1u);
  const auto decoder = tokenizer->NewDecoder();
  const std::string first = decoder->Push(ids[0]);
  EXPECT_LT(first.size(), text.size());
  EXPECT_EQ(first, text.substr(0, first.size()));
}

}  // namespace
}  // namespace deltafill::coordinator
