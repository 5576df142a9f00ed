#include "client/prompt_upload.h"

#include <algorithm>

#include "proto/prefill.pb.h"

namespace deltafill::client {
namespace {

// A piece is written while the one before is hashed.
constexpr size_t kPieceTokens = size_t{64} << 10;
constexpr size_t kPieceTextBytes = size_t{256} << 10;

// Has `fill` put elements [begin, end) into a prompt, for each piece; at least once.
void Send(const v1::PrefillRequest& request, size_t size, size_t piece_size,
          absl::FunctionRef<void(size_t begin, size_t end, v1::Prompt*)> fill, WriteRequest write) {
  size_t end = std::min(size, piece_size);
  v1::PrefillRequest first = request;
  fill(0, end, first.mutable_prompt());
  bool alive = write(first);
  v1::PrefillRequest piece;
  while (alive && end < size) {
    const size_t begin = end;
    end = std::min(size, begin + piece_size);
    fill(begin, end, piece.mutable_prompt());
    alive = write(piece);
  }
}

}  // namespace

void SendInPieces(const v1::PrefillRequest& request, const PromptContent& prompt,
                  WriteRequest write) {
  if (const auto* text = std::get_if<PromptText>(&prompt)) {
    const auto fill = [text](size_t begin, size_t end, v1::Prompt* piece) {
      piece->set_text(text->text.data() + begin, end - begin);
    };
    return Send(request, text->text.size(), kPieceTextBytes, fill, write);
  }
  const auto& tokens = std::get<std::vector<uint32_t>>(prompt);
  v1::PrefillRequest counted = request;
  counted.set_prompt_tokens(tokens.size());
  const auto fill = [&tokens](size_t begin, size_t end, v1::Prompt* piece) {
    piece->mutable_tokens()->mutable_ids()->Assign(tokens.data() + begin, tokens.data() + end);
  };
  Send(counted, tokens.size(), kPieceTokens, fill, write);
}

}  // namespace deltafill::client
