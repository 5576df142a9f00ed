#include "coordinator/tokenizer/huggingface_tokenizer.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/added_tokens.h"
#include "coordinator/tokenizer/bpe_model.h"
#include "coordinator/tokenizer/huggingface_file.h"
#include "coordinator/tokenizer/normal_form.h"
#include "coordinator/tokenizer/piece_encoder.h"
#include "coordinator/tokenizer/piece_splitter.h"
#include "coordinator/tokenizer/token_bytes.h"
#include "coordinator/tokenizer/utf8.h"

namespace deltafill::coordinator {
namespace {

// What a tokenizer is made of; immutable once made.
struct Parts {
  TokenBytes tokens;                  // of the vocabulary, where they stand for bytes
  std::shared_ptr<TokenBytes> shown;  // what decoding adds
  std::unique_ptr<BpeModel> model;    // refers to tokens
  std::unique_ptr<PieceSplitter> splitter;
  bool normal_form_c = false;
  AddedTokens raw_added, added;
  bool prefix_space = false;
};

// One call of Encode.
class Encoding {
 public:
  Encoding(const Parts& parts, size_t text_bytes, bool allow_special)
      : parts_(parts), allow_special_(allow_special), encoder_(*parts.model, text_bytes) {}

  absl::Status Text(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const Utf8Run run = NextUtf8Run(text, at);
      at += run.bytes.size();
      if (!run.well_formed) {
        encoder_.OnPiece(run.bytes);
      } else if (absl::Status status = WellFormed(run.bytes); !status.ok()) {
        return status;
      }
    }
    return encoder_.status();
  }

  std::vector<uint32_t> TakeIds() { return encoder_.TakeIds(); }

 private:
  absl::Status WellFormed(std::string_view text) {
    for (const AddedTokens::Part& raw : parts_.raw_added.Cut(text, allow_special_)) {
      if (raw.token != nullptr) {
        encoder_.OnToken(raw.token->id);
        continue;
      }
      for (const AddedTokens::Part& part :
           parts_.added.Cut(InNormalForm(raw.text), allow_special_)) {
        if (part.token != nullptr) {
          encoder_.OnToken(part.token->id);
        } else if (absl::Status status =
                       parts_.splitter->Split(WithPrefix(part.text), &scratch_, &encoder_);
                   !status.ok()) {
          return status;
        }
      }
    }
    return absl::OkStatus();
  }

  std::string_view InNormalForm(std::string_view text) {
    if (!parts_.normal_form_c) return text;
    return changed_.emplace_back(InNormalFormC(text));
  }

  std::string_view WithPrefix(std::string_view text) {
    if (!parts_.prefix_space || text.front() == ' ') return text;
    return changed_.emplace_back(absl::StrCat(" ", std::string(text)));
  }

  const Parts& parts_;
  const bool allow_special_;
  PieceEncoder encoder_;
  PieceSplitter::Scratch scratch_;
  std::deque<std::string> changed_;  // texts that pieces point into
};

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  explicit HuggingFaceTokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text,
                                               bool allow_special) const override {
    if (absl::Status status = CheckTextSize(text); !status.ok()) return status;
    Encoding encoding(*parts_, text.size(), allow_special);
    if (absl::Status status = encoding.Text(text); !status.ok()) return status;
    return encoding.TakeIds();
  }

  std::unique_ptr<TokenDecoder> NewDecoder() const override {
    return NewBytesOfTokenDecoder(parts_->shown);
  }

 private:
  const std::unique_ptr<const Parts> parts_;
};

using SpecialIds = absl::flat_hash_set<uint32_t>;

// Text must never yield a special token, so nothing may merge into one.
absl::Status CheckSpecials(const HuggingFaceFile& file, const TokenBytes& tokens,
                           const SpecialIds& specials) {
  for (size_t i = 0; i < file.merges.size(); ++i) {
    if (specials.contains(file.merges[i].merged)) {
      return absl::UnimplementedError(
          absl::StrCat("tokenizer.json: model.merges[", i, "]: makes a special token"));
    }
  }
  for (const uint32_t id : specials) {
    if (tokens.Get(id).size() == 1) {
      return absl::UnimplementedError(absl::StrCat(
          "tokenizer.json: added_tokens: the special token ", id, " is a single byte"));
    }
  }
  return absl::OkStatus();
}

// A piece that is a token's bytes is this token: always if merges are ignored then, and else if
// merging makes it of them, which is found out once here.
void PutWholePieces(const HuggingFaceFile& file, const TokenBytes& tokens,
                    const SpecialIds& specials, BpeModel* model) {
  MergeScratch scratch;
  std::vector<uint32_t> merged;
  for (const VocabularyEntry& entry : file.vocabulary) {
    if (!tokens.Has(entry.id) || specials.contains(entry.id)) continue;
    merged.clear();
    if (!file.ignore_merges && (!model->AppendMerged(tokens.Get(entry.id), &scratch, &merged) ||
                                merged != std::vector<uint32_t>{entry.id})) {
      continue;
    }
    model->PutWholePiece(entry.id);
  }
}

absl::Status PutVocabulary(const HuggingFaceFile& file, Parts* parts) {
  SpecialIds specials;
  SpecialIds added;
  for (const std::vector<AddedToken>* tokens : {&file.raw_added, &file.added}) {
    for (const AddedToken& token : *tokens) {
      added.insert(token.id);
      if (token.special) specials.insert(token.id);
    }
  }
  std::string bytes;
  for (const VocabularyEntry& entry : file.vocabulary) {
    const bool is_bytes = BytesOfEntry(entry.text, &bytes) && !bytes.empty();
    absl::Status status;
    if (is_bytes) status = parts->tokens.Put(entry.id, bytes);
    if (status.ok() && !added.contains(entry.id)) {
      status = parts->shown->Put(entry.id, is_bytes ? bytes : entry.text);
    }
    if (!status.ok()) return status;
  }
  if (absl::Status status = CheckSpecials(file, parts->tokens, specials); !status.ok()) {
    return status;
  }
  parts->model =
      std::make_unique<BpeModel>(parts->tokens, file.merges.size(), file.vocabulary.size());
  for (size_t rank = 0; rank < file.merges.size(); ++rank) {
    const VocabularyMerge& merge = file.merges[rank];
    parts->model->PutPair(merge.left, merge.right, {static_cast<uint32_t>(rank), merge.merged});
  }
  for (const VocabularyEntry& entry : file.vocabulary) {
    const std::string_view token = parts->tokens.Get(entry.id);
    if (token.size() == 1) parts->model->PutByte(static_cast<uint8_t>(token.front()), entry.id);
  }
  PutWholePieces(file, parts->tokens, specials, parts->model.get());
  return absl::OkStatus();
}

absl::Status PutAdded(std::vector<AddedToken> tokens, bool normal_form_c, AddedTokens* added,
                      TokenBytes* shown) {
  std::string bytes;
  for (AddedToken& token : tokens) {
    // The tokenizers library decodes these through the byte-level alphabet as well.
    const bool is_bytes = BytesOfEntry(token.content, &bytes);
    absl::Status status = shown->Put(token.id, token.special ? std::string_view()
                                               : is_bytes    ? bytes
                                                             : token.content);
    if (normal_form_c) token.content = InNormalFormC(token.content);
    if (status.ok()) status = added->Put(std::move(token));
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.json: added_tokens: ", std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> NewHuggingFaceTokenizer(
    std::string_view contents) {
  absl::StatusOr<HuggingFaceFile> file = ReadHuggingFaceFile(contents);
  if (!file.ok()) return file.status();
  auto parts = std::make_unique<Parts>();
  parts->shown = std::make_shared<TokenBytes>();
  parts->normal_form_c = file->normal_form_c;
  parts->prefix_space = file->prefix_space;
  absl::Status status = PutVocabulary(*file, parts.get());
  if (status.ok()) {
    status = PutAdded(std::move(file->raw_added), false, &parts->raw_added, parts->shown.get());
  }
  if (status.ok()) {
    status =
        PutAdded(std::move(file->added), parts->normal_form_c, &parts->added, parts->shown.get());
  }
  if (!status.ok()) return status;
  absl::StatusOr<std::unique_ptr<PieceSplitter>> splitter =
      PieceSplitter::Create(file->split_rules);
  if (!splitter.ok()) return splitter.status();
  parts->splitter = *std::move(splitter);
  return std::make_shared<HuggingFaceTokenizer>(std::move(parts));
}

}  // namespace deltafill::coordinator
