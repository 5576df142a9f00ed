#include "coordinator/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

namespace deltafill::coordinator {
namespace {

constexpr char kFile[] =
    R"({"kind": "bytes", "special_tokens": {"<bos>": 256, "<eos>": 257, "<eos>x": 258}})";

std::shared_ptr<const Tokenizer> Bytes() {
  auto tokenizer = NewTokenizer("bytes", kFile);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(BytesTokenizer, EveryByteIsItsOwnToken) {
  std::string text;
  for (int i = 0; i < 256; ++i) text.push_back(static_cast<char>(i));
  const auto ids = Bytes()->Encode(text);
  ASSERT_TRUE(ids.ok());
  ASSERT_EQ(ids->size(), 256u);
  const auto decoder = Bytes()->NewDecoder();
  std::string back;
  for (size_t i = 0; i < 256; ++i) {
    EXPECT_EQ((*ids)[i], i);
    back += decoder->Push((*ids)[i]);
  }
  EXPECT_EQ(back, text);
}

TEST(BytesTokenizer, TextNeverYieldsSpecials) {
  const auto ids = Bytes()->Encode("a<eos>b<bos>");
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->size(), 12u);
  for (uint32_t id : *ids) EXPECT_LT(id, 256u);
}

TEST(BytesTokenizer, SpecialsWhereTheyAreAllowed) {
  const auto ids = Bytes()->Encode("a<eos>b<eos>x", /*allow_special=*/true);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, (std::vector<uint32_t>{'a', 257, 'b', 258})) << "the longest one wins";
}

TEST(BytesTokenizer, SpecialAndUnknownIdsAddNoText) {
  const auto decoder = Bytes()->NewDecoder();
  EXPECT_EQ(decoder->Push(257), "");
  EXPECT_EQ(decoder->Push(100000), "");
  EXPECT_EQ(decoder->Push(0xC3), "\xC3") << "may end inside a UTF-8 sequence";
}

TEST(BytesTokenizer, EmptyText) { EXPECT_TRUE(Bytes()->Encode("")->empty()); }

TEST(NewTokenizer, RefusesWhatItCannotUse) {
  EXPECT_EQ(NewTokenizer("bpe", "{}").status().code(), absl::StatusCode::kUnimplemented);
  for (const char* file :
       {"", "[]", "{", R"({"kind": "bpe"})", R"({"special_tokens": []})",
        R"({"special_tokens": {"<x>": 255}})", R"({"special_tokens": {"<x>": -1}})",
        R"({"special_tokens": {"<x>": "256"}})", R"({"special_tokens": {"": 256}})",
        R"({"special_tokens": {"<x>": 4294967296}})"}) {
    EXPECT_EQ(NewTokenizer("bytes", file).status().code(), absl::StatusCode::kInvalidArgument)
        << file;
  }
  EXPECT_TRUE(NewTokenizer("bytes", "{}").ok());
}

}  // namespace
}  // namespace deltafill::coordinator
