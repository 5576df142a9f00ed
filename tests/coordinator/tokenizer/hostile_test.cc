// Files that must be refused, naming what is wrong; texts that must not take quadratic time; many
// threads on one tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/tokenizer/piece_splitter.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace deltafill::coordinator {
namespace {

using testing::HasSubstr;

std::string Fixture(const std::string& name) {
  std::ifstream stream(std::string(DELTAFILL_TOKENIZER_FIXTURES) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string Packed(const std::string& config, const std::string& ranks) {
  return "deltafill.tiktoken.1\n" + std::to_string(config.size()) + "\n" + config + ranks;
}

std::string Replaced(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, text.npos) << what;
  return text.replace(at, what.size(), with);
}

void ExpectRefused(const char* kind, const std::string& contents, absl::StatusCode code,
                   const std::string& named) {
  const auto tokenizer = NewTokenizer(kind, contents);
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status();
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(named));
}

TEST(HuggingFaceFile, RefusesWhatItWouldReadDifferently) {
  const std::string file = Fixture("llama/tokenizer.json");
  ASSERT_TRUE(NewTokenizer("huggingface", file).ok());
  const struct {
    const char *what, *with, *named;
  } unsupported[] = {
      {"\"truncation\":null", "\"truncation\":{}", "truncation"},
      {"\"padding\":null", "\"padding\":1", "padding"},
      {"\"version\"", "\"verse\"", "verse"},
      {"\"normalizer\":null", R"("normalizer":{"type":"NFKC"})", "normalizer.type: \"NFKC\""},
      {"\"normalizer\":null", R"("normalizer":{"type":"NFC","form":1})", "normalizer.form"},
      {"\"dropout\":null", "\"dropout\":0.1", "model.dropout"},
      {"\"byte_fallback\":false", "\"byte_fallback\":true", "model.byte_fallback"},
      {"\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"_\"", "model.end_of_word_suffix"},
      {"\"type\":\"BPE\"", "\"type\":\"Unigram\"", "model.type: \"Unigram\""},
      {"\"Isolated\"", "\"MergedWithNext\"", "pre_tokenizer.pretokenizers[0].behavior"},
      {"\"type\":\"Split\"", "\"type\":\"Metaspace\"", "pretokenizers[0].type: \"Metaspace\""},
      {"\\\\s+(?!\\\\S)", "\\\\s+(?<!\\\\S)", "pretokenizers[0]: pattern: byte"},
      {"\\\\p{L}+", "\\\\p{Greek}+", "general categories and Han"},
      {"\"add_prefix_space\":false", "\"add_prefix_space\":true", "add_prefix_space"},
  };
  for (const auto& change : unsupported) {
    ExpectRefused("huggingface", Replaced(file, change.what, change.with),
                  absl::StatusCode::kUnimplemented, change.named);
  }
  const struct {
    const char *what, *with, *named;
  } malformed[] = {
      {"\"merges\":[", "\"merges\":[[\"a\"],", "model.merges[0]"},
      {"\"merges\":[", "\"merges\":[\"a b c\",", "model.merges[0]"},
      {"\"merges\":[", "\"merges\":[[\"zq\",\"qz\"],", "model.merges[0]"},
      {"\"vocab\":{", "\"vocab\":{\"zq\":0,", "is there twice"},
      {"\"vocab\":{", "\"vocab\":{\"zq\":-1,", "model.vocab[\"zq\"]"},
      {"\"vocab\":{", "\"vocab\":{\"zq\":4194304,", "model.vocab[\"zq\"]"},
      {"\"id\":64", "\"id\":74", "added_tokens[0].id"},
      {"\"content\":\"[EOS]\"", "\"content\":\"[BOS]\"", "added_tokens"},
      {"(?i:", "(?i:(", "( without )"},
      {"\\\\p{N}{1,3}", "\\\\p{N}{3,1}", "repeats must ascend"},
      {"\\\\p{N}{1,3}", "\\\\p{N}*", "can match nothing"},
  };
  for (const auto& change : malformed) {
    ExpectRefused("huggingface", Replaced(file, change.what, change.with),
                  absl::StatusCode::kInvalidArgument, change.named);
  }
  for (const char* text : {"", "[]", "{", "\xff"}) {
    ExpectRefused("huggingface", text, absl::StatusCode::kInvalidArgument, "tokenizer.json");
  }
  ExpectRefused("huggingface", "{}", absl::StatusCode::kUnimplemented, "pre_tokenizer");
}

TEST(HuggingFaceFile, TextNeverMergesIntoASpecialToken) {
  std::string file = Fixture("llama/tokenizer.json");
  file = Replaced(file, "\"content\":\"[BOS]\"", "\"content\":\"in\"");
  const size_t at = file.find("\"in\":") + 5;
  const std::string id = file.substr(at, file.find(',', at) - at);
  file = file.replace(file.find("\"id\":") + 5,
                      file.find(',', file.find("\"id\":")) - file.find("\"id\":") - 5, id);
  const auto tokenizer = NewTokenizer("huggingface", file);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_THAT(std::string(tokenizer.status().message()),
              testing::AnyOf(HasSubstr("makes a special token"), HasSubstr("added_tokens")));
}

TEST(HuggingFaceFile, AByteWithoutTokenIsRefusedInTextOnly) {
  // "Q" is in no merge of the fixture.
  const auto tokenizer =
      NewTokenizer("huggingface", Replaced(Fixture("gpt2/tokenizer.json"), "\"Q\":", "\"QQQQ\":"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE((*tokenizer)->Encode("abc").ok());
  const auto ids = (*tokenizer)->Encode("abQc");
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ids.status().message()), HasSubstr("no token for the byte 81"));
}

TEST(TiktokenFile, RefusesWhatIsMalformed) {
  const std::string ranks = Fixture("kimi/tiktoken.model");
  const std::string config = Fixture("kimi/tokenizer_config.json");
  ASSERT_TRUE(NewTokenizer("tiktoken", Packed(config, ranks)).ok());
  ASSERT_TRUE(NewTokenizer("tiktoken", Packed("", ranks)).ok()) << "no configuration";
  const auto bad_ranks = [&](const std::string& file, const char* named) {
    ExpectRefused("tiktoken", Packed(config, file), absl::StatusCode::kInvalidArgument, named);
  };
  bad_ranks("", "the byte 0 has no rank");
  bad_ranks("IQ==\n" + ranks, "line 1");
  bad_ranks("I? 9\n" + ranks, "line 1: not base64");
  bad_ranks("IQ== -1\n" + ranks, "line 1: the rank");
  bad_ranks(ranks + "IQ== 100000\n", "there twice");
  bad_ranks(ranks + "cXF6eg== 0\n", "there twice");
  const auto bad_config = [&](const std::string& file, absl::StatusCode code, const char* named) {
    ExpectRefused("tiktoken", Packed(file, ranks), code, named);
  };
  bad_config("[]", absl::StatusCode::kInvalidArgument, "tokenizer_config.json");
  bad_config(R"({"tokenizer_class": "Other"})", absl::StatusCode::kUnimplemented,
             "tokenizer_class");
  bad_config(R"({"added_tokens_decoder": {"x": {}}})", absl::StatusCode::kInvalidArgument,
             "added_tokens_decoder.x");
  bad_config(R"({"added_tokens_decoder": {"9000": {}}})", absl::StatusCode::kInvalidArgument,
             "9000.content");
  bad_config(R"({"added_tokens_decoder": {"5": {"content": "x"}}})",
             absl::StatusCode::kInvalidArgument, "token id 5: is there twice");
  bad_config(R"({"added_tokens_decoder": {"9000": {"content": "x", "lstrip": true}}})",
             absl::StatusCode::kUnimplemented, "9000.lstrip");
  for (const char* contents : {"", "deltafill.tiktoken.1\n", "deltafill.tiktoken.1\n9\n{}",
                               "deltafill.tiktoken.1\n-1\n", "IQ== 0\n"}) {
    ExpectRefused("tiktoken", contents, absl::StatusCode::kInvalidArgument, "tiktoken contents");
  }
}

// Each of these would take minutes if anything were quadratic in the length of a run.
TEST(LongRuns, TakeAboutLinearTime) {
  constexpr size_t kBytes = size_t{256} << 10;
  const std::string kimi =
      Packed(Fixture("kimi/tokenizer_config.json"), Fixture("kimi/tiktoken.model"));
  for (const auto& tokenizer :
       {NewTokenizer("tiktoken", kimi), NewTokenizer("huggingface", Fixture("qwen/tokenizer.json")),
        NewTokenizer("huggingface", Fixture("digits/tokenizer.json"))}) {
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const char* unit : {"a", "A", " ", "\n", " \n", "9", "!", "ab", "\xE4\xB8\xAD", "\xFF",
                             "a\xFF", "\xCC\x81\xCC\xA3", "<|im_end|>", "'s", "\r\n \t"}) {
      std::string text;
      while (text.size() < kBytes) text += unit;
      const auto ids = (*tokenizer)->Encode(text, /*allow_special=*/true);
      ASSERT_TRUE(ids.ok()) << unit << ids.status();
      EXPECT_LE(ids->size(), text.size()) << unit;
    }
  }
}

TEST(Threads, ShareOneTokenizer) {
  const auto tokenizer = NewTokenizer("huggingface", Fixture("qwen/tokenizer.json"));
  ASSERT_TRUE(tokenizer.ok());
  const std::string text = Fixture("texts/mixed") + Fixture("texts/not_utf8");
  const auto expected = (*tokenizer)->Encode(text);
  ASSERT_TRUE(expected.ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) EXPECT_EQ(*(*tokenizer)->Encode(text), *expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(PieceSplitter, TakesOnlyWhatMeansTheSameEverywhere) {
  for (const char* pattern :
       {"^a", "\\w", "\\b", "a{2}+", "a**", "(?<=a)b", "(?P<x>a)", "\\1a", "[a--b]", "[[:alpha:]]",
        "(?i:\\p{Lu})", "(?i:\xC3\xA9)", "\\xE9", "(?=a)*b", "[a-c-e]", "\\Qa"}) {
    EXPECT_EQ(PieceSplitter::Create({{.pattern = pattern}}).status().code(),
              absl::StatusCode::kUnimplemented)
        << pattern;
  }
  for (const char* pattern :
       {"", "a(", "a)", "[a", "[]", "[b-a]", "a|", "a{,2}", "a{1001}", "\\", "\\p{L", "\\x{110000}",
        "\\u00", "+a", "[\\p{L}-z]", "\xFF", "(?!a)", "a{2", "\\x{d800}"}) {
    EXPECT_EQ(PieceSplitter::Create({{.pattern = pattern}}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << pattern;
  }
  EXPECT_FALSE(PieceSplitter::Create({{.pattern = std::string(200, '(') + "a"}}).ok());
}

}  // namespace
}  // namespace deltafill::coordinator
