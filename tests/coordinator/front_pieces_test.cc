// PrefillInPieces: the same as Prefill whatever the pieces, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>

#include "coordinator/front/limits.h"
#include "tests/coordinator/front_fixture.h"

namespace deltafill::coordinator {
namespace {

class FrontPiecesTest : public FrontTest {
 protected:
  static v1::PrefillRequest Piece(const std::vector<uint32_t>& tokens, size_t first, size_t end) {
    v1::PrefillRequest piece;
    piece.mutable_prompt()->mutable_tokens()->mutable_ids()->Add(tokens.begin() + first,
                                                                 tokens.begin() + end);
    return piece;
  }

  // The request, its tokens cut into pieces of that size.
  static std::vector<v1::PrefillRequest> Cut(v1::PrefillRequest request, size_t piece_tokens) {
    const std::vector<uint32_t> tokens(request.prompt().tokens().ids().begin(),
                                       request.prompt().tokens().ids().end());
    request.clear_prompt();
    request.set_prompt_tokens(tokens.size());
    std::vector<v1::PrefillRequest> pieces = {request};
    for (size_t first = 0; first < tokens.size(); first += piece_tokens) {
      pieces.push_back(Piece(tokens, first, std::min(tokens.size(), first + piece_tokens)));
    }
    return pieces;
  }

  void ExpectRefused(const std::vector<v1::PrefillRequest>& pieces, const std::string& text) {
    const PrefillResult result = PrefillInPieces(pieces);
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(result.status.error_message().find(text), 0u) << result.status.error_message();
    EXPECT_TRUE(engine_->prefills().empty());
  }
};

TEST_F(FrontPiecesTest, AnyPiecesGiveWhatOneRequestGives) {
  const v1::PrefillRequest request = PrefillOf(Tokens(300), {128});
  const PrefillResult whole = Prefill(request, "whole");
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  for (size_t piece_tokens : {1, 63, 64, 65, 299, 1000}) {
    SCOPED_TRACE(piece_tokens);
    const std::string tenant = "tenant-" + std::to_string(piece_tokens);
    const PrefillResult result = PrefillInPieces(Cut(request, piece_tokens), tenant);
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    EXPECT_EQ(result.logits, whole.logits);
    EXPECT_EQ(result.order.front(), 'a');
    EXPECT_EQ(result.order.back(), 'd');
    EXPECT_EQ(result.done.boundary(), whole.done.boundary());
    EXPECT_EQ(result.done.tokens(), 300u);
    EXPECT_EQ(result.checkpoints.size(), 1u);
    // The keys are those of the whole prompt.
    const PrefillResult again = Prefill(request, tenant);
    EXPECT_EQ(again.done.cached_tokens(), 256u);
    EXPECT_EQ(again.done.state(), result.done.state());
  }
}

TEST_F(FrontPiecesTest, OneRequestIsAPieceToo) {
  const PrefillResult result = PrefillInPieces({PrefillOf(Tokens(100))});
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  const v1::Timings& timings = result.done.timings();
  EXPECT_GT(timings.prompt_s(), 0.0);
  EXPECT_GE(timings.logits_s(), timings.prompt_s());
  EXPECT_GE(timings.total_s(), timings.logits_s());
}

TEST_F(FrontPiecesTest, AnotherNumberOfTokensIsRefused) {
  std::vector<v1::PrefillRequest> pieces = Cut(PrefillOf(Tokens(300)), 100);
  pieces.pop_back();
  ExpectRefused(pieces, "prompt_tokens: is 300, but 200 tokens came");
  pieces = Cut(PrefillOf(Tokens(300)), 100);
  pieces[0].set_prompt_tokens(kPromptTokensMax + 1);
  ExpectRefused(pieces, "prompt_tokens: 4194305 tokens; at most 4194304");
  v1::PrefillRequest request = PrefillOf(Tokens(10));
  request.set_prompt_tokens(11);
  EXPECT_EQ(Prefill(request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(FrontPiecesTest, WhatDoesNotFollowIsRefused) {
  ExpectRefused({}, "prompt: no request came");
  ExpectRefused({v1::PrefillRequest()}, "prompt: empty");
  std::vector<v1::PrefillRequest> pieces = Cut(PrefillOf(Tokens(300)), 100);
  pieces[2].set_return_logits(true);
  ExpectRefused(pieces, "prompt: requests after the first have nothing but a prompt");
  pieces = Cut(PrefillOf(Tokens(300)), 100);
  pieces[3].mutable_prompt()->mutable_tokens()->set_ids(7, kVocabulary);
  ExpectRefused(pieces, "prompt.tokens.ids[207]");
  pieces = Cut(PrefillOf(Tokens(300)), 100);
  pieces[2].mutable_prompt()->set_text("text");
  ExpectRefused(pieces, "prompt.text: follows on tokens");
  v1::PrefillRequest text;
  text.mutable_prompt()->set_text("text");
  ExpectRefused({text, Piece(Tokens(10), 0, 10)}, "prompt.tokens: follow on text");
}

TEST_F(FrontPiecesTest, APromptThatIsCutOffIsNotComputed) {
  const std::vector<v1::PrefillRequest> pieces = Cut(PrefillOf(Tokens(300)), 100);
  const auto context = By("default");
  const auto stream = stub_->PrefillInPieces(context.get());
  ASSERT_TRUE(stream->Write(pieces[0]));
  ASSERT_TRUE(stream->Write(pieces[1]));
  context->TryCancel();
  EXPECT_FALSE(stream->Finish().ok());
  server_->Stop(std::chrono::milliseconds(0));  // waits for the call to end
  EXPECT_TRUE(engine_->prefills().empty());
}

}  // namespace
}  // namespace deltafill::coordinator
