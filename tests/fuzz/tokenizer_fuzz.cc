// Tokenizer files and texts. The first byte says what the rest is: the contents of one kind, with a
// text behind a NUL to encode; a pattern and a text; or a text for tokenizers that are known to be
// right. Nothing crashes, and where nothing is dropped decoding gives back what was encoded.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "coordinator/tokenizer/piece_splitter.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace deltafill::coordinator {
namespace {

constexpr char kByteLevel[] =
    R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, )"
    R"("model": {"type": "BPE", )";

// A vocabulary of single bytes and a few merges of "a" and "b".
std::string RanksOfBytes() {
  static constexpr char kAlphabet[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string ranks;
  for (int byte = 0; byte < 256; ++byte) {
    ranks += {kAlphabet[byte >> 2], kAlphabet[(byte & 3) << 4], '=', '=', ' '};
    ranks += std::to_string(byte) + "\n";
  }
  return ranks + "YWI= 256\nYWFi 257\nYmI= 258\nICA= 259\nYWJiYg== 260\nDQo= 261\n";
}

const Tokenizer& Known() {
  static const std::shared_ptr<const Tokenizer> tokenizer = [] {
    const std::string config = R"({"added_tokens_decoder": {"300": {"content": "<|x|>"}}})";
    auto made = NewTokenizer("tiktoken", "deltafill.tiktoken.1\n" + std::to_string(config.size()) +
                                             "\n" + config + RanksOfBytes());
    if (!made.ok()) std::abort();
    return *std::move(made);
  }();
  return *tokenizer;
}

std::string Decoded(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids) {
  std::string text;
  const auto decoder = tokenizer.NewDecoder();
  for (const uint32_t id : ids) text += decoder->Push(id);
  return text;
}

void EncodeKnown(std::string_view text) {
  const auto ids = Known().Encode(text);
  if (!ids.ok() || Decoded(Known(), *ids) != text) std::abort();
  if (!Known().Encode(text, /*allow_special=*/true).ok()) std::abort();
}

void MakeAndEncode(std::string_view kind, std::string_view contents, std::string_view text) {
  const auto tokenizer = NewTokenizer(kind, contents);
  if (!tokenizer.ok()) return;
  for (const bool allow_special : {false, true}) {
    const auto ids = (*tokenizer)->Encode(text, allow_special);
    if (ids.ok()) Decoded(**tokenizer, *ids);
  }
}

class Joiner final : public PieceSink {
 public:
  void OnPiece(std::string_view piece) override { joined += piece; }
  std::string joined;
};

void SplitBy(std::string_view pattern, std::string_view text) {
  const auto splitter = PieceSplitter::Create({{.pattern = std::string(pattern)}});
  if (!splitter.ok()) return;
  for (const char byte : text) {
    if (static_cast<uint8_t>(byte) >= 0x80) return;  // it takes well-formed text only
  }
  PieceSplitter::Scratch scratch;
  Joiner joiner;
  if ((*splitter)->Split(text, &scratch, &joiner).ok() && joiner.joined != text) std::abort();
}

}  // namespace
}  // namespace deltafill::coordinator

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace deltafill::coordinator;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const size_t end = rest.find('\0');
  const std::string_view first = rest.substr(0, end);
  const std::string_view text = end == rest.npos ? std::string_view() : rest.substr(end + 1);
  switch (bytes[0] % 6) {
    case 0:
      MakeAndEncode("huggingface", first, text);
      break;
    case 1:
      MakeAndEncode("tiktoken", "deltafill.tiktoken.1\n" + std::string(first), text);
      break;
    case 2:
      SplitBy(first, text);
      break;
    case 3:  // a model whose vocabulary is there, so that merges and options are reached
      MakeAndEncode("huggingface",
                    std::string("{") + kByteLevel +
                        R"("vocab": {"a": 0, "b": 1, "ab": 2, "aab": 3, "<": 4, "e": 5}, )" +
                        std::string(first) + "}",
                    text);
      break;
    case 4:
      MakeAndEncode("tiktoken",
                    "deltafill.tiktoken.1\n" + std::to_string(first.size()) + "\n" +
                        std::string(first) + RanksOfBytes(),
                    text);
      break;
    default:
      EncodeKnown(rest);
  }
  return 0;
}
