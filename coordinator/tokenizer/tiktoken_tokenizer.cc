#include "coordinator/tokenizer/tiktoken_tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/bpe_model.h"
#include "coordinator/tokenizer/piece_encoder.h"
#include "coordinator/tokenizer/piece_splitter.h"
#include "coordinator/tokenizer/tiktoken_file.h"
#include "coordinator/tokenizer/token_bytes.h"
#include "coordinator/tokenizer/utf8.h"

namespace deltafill::coordinator {
namespace {

// How Kimi's tokenizer cuts text: runs of Han; words, their upper case before their lower case,
// with one character of punctuation before and an English contraction behind; up to 3 digits;
// punctuation; line ends; white space, whose last one goes to the word that follows.
std::string KimiPattern() {
  const std::string before = R"([^\r\n\p{L}\p{N}]?)";
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&\P{Han}])";
  const std::string lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&\P{Han}])";
  const std::string contraction = "(?i:'(?:[stmd]|re|ve|ll))?";
  return absl::StrCat(R"(\p{Han}+|)", before, upper, "*", lower, "+", contraction, "|", before,
                      upper, "+", lower, "*", contraction,
                      R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

class TiktokenTokenizer final : public Tokenizer {
 public:
  TiktokenTokenizer(std::shared_ptr<const TokenBytes> ranked,
                    std::shared_ptr<const TokenBytes> shown, std::unique_ptr<const BpeModel> model,
                    std::unique_ptr<const PieceSplitter> splitter, AddedTokens added)
      : ranked_(std::move(ranked)),
        shown_(std::move(shown)),
        model_(std::move(model)),
        splitter_(std::move(splitter)),
        added_(std::move(added)) {}

  absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text,
                                               bool allow_special) const override {
    if (absl::Status status = CheckTextSize(text); !status.ok()) return status;
    PieceEncoder encoder(*model_, text.size());
    PieceSplitter::Scratch scratch;
    for (size_t at = 0; at < text.size();) {
      const Utf8Run run = NextUtf8Run(text, at);
      at += run.bytes.size();
      if (!run.well_formed) {
        encoder.OnPiece(run.bytes);
        continue;
      }
      for (const AddedTokens::Part& part : added_.Cut(run.bytes, allow_special)) {
        if (part.token != nullptr) {
          encoder.OnToken(part.token->id);
        } else if (absl::Status status = splitter_->Split(part.text, &scratch, &encoder);
                   !status.ok()) {
          return status;
        }
      }
    }
    if (!encoder.status().ok()) return encoder.status();
    return encoder.TakeIds();
  }

  std::unique_ptr<TokenDecoder> NewDecoder() const override {
    return NewBytesOfTokenDecoder(shown_);
  }

 private:
  const std::shared_ptr<const TokenBytes> ranked_;
  const std::shared_ptr<const TokenBytes> shown_;
  const std::unique_ptr<const BpeModel> model_;  // refers to *ranked_
  const std::unique_ptr<const PieceSplitter> splitter_;
  const AddedTokens added_;
};

struct RankedPair {
  uint32_t left, right, merged;
};

// Every way to make a token of two others: what merges two neighbours is that their bytes together
// are a token.
std::vector<RankedPair> PairsOf(const TiktokenFile& file, const TokenBytes& tokens) {
  WholePieces ids(tokens, file.ranked.size());
  for (const RankedToken& token : file.ranked) ids.Put(token.rank);
  std::vector<RankedPair> pairs;
  for (const RankedToken& token : file.ranked) {
    const std::string_view bytes = token.bytes;
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const uint32_t left = ids.Get(bytes.substr(0, cut));
      if (left == kNoToken) continue;
      const uint32_t right = ids.Get(bytes.substr(cut));
      if (right != kNoToken) pairs.push_back({left, right, token.rank});
    }
  }
  return pairs;
}

std::unique_ptr<BpeModel> ModelOf(const TiktokenFile& file, const TokenBytes& tokens) {
  const std::vector<RankedPair> pairs = PairsOf(file, tokens);
  auto model = std::make_unique<BpeModel>(tokens, pairs.size(), file.ranked.size());
  for (const RankedPair& pair : pairs) {
    model->PutPair(pair.left, pair.right, {pair.merged, pair.merged});
  }
  for (const RankedToken& token : file.ranked) {
    model->PutWholePiece(token.rank);
    if (token.bytes.size() == 1) {
      model->PutByte(static_cast<uint8_t>(token.bytes.front()), token.rank);
    }
  }
  return model;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> NewTiktokenTokenizer(std::string_view contents) {
  absl::StatusOr<TiktokenFile> file = ReadTiktokenFile(contents);
  if (!file.ok()) return file.status();
  auto ranked = std::make_shared<TokenBytes>();
  for (const RankedToken& token : file->ranked) {
    if (absl::Status status = ranked->Put(token.rank, token.bytes); !status.ok()) return status;
  }
  auto shown = std::make_shared<TokenBytes>(*ranked);
  AddedTokens added;
  for (AddedToken& token : file->added) {
    const bool special = token.special;
    absl::Status status = shown->Put(token.id, special ? std::string_view() : token.content);
    // Text never yields any of them by itself: tiktoken knows all of them as special ones.
    token.special = true;
    if (status.ok()) status = added.Put(std::move(token));
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tokenizer_config.json: added_tokens_decoder: ", std::string(status.message())));
    }
  }
  absl::StatusOr<std::unique_ptr<PieceSplitter>> splitter =
      PieceSplitter::Create({{.pattern = KimiPattern(), .keep_rest = false}});
  if (!splitter.ok()) return splitter.status();
  std::unique_ptr<BpeModel> model = ModelOf(*file, *ranked);
  return std::make_shared<TiktokenTokenizer>(std::move(ranked), std::move(shown), std::move(model),
                                             *std::move(splitter), std::move(added));
}

}  // namespace deltafill::coordinator
