// Cutting text into the pieces that are encoded one by one.
#ifndef DELTAFILL_COORDINATOR_TOKENIZER_PIECE_SPLITTER_H_
#define DELTAFILL_COORDINATOR_TOKENIZER_PIECE_SPLITTER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace deltafill::coordinator {

// Cuts what it is given wherever the pattern matches.
struct SplitRule {
  std::string pattern;  // see split_pattern.h
  bool keep_matches = true;
  bool keep_rest = true;  // what no match covers
};

class PieceSink {
 public:
  virtual ~PieceSink() = default;
  virtual void OnPiece(std::string_view piece) = 0;  // never empty
};

// The patterns are compiled by PCRE2 (with its just-in-time compiler where there is one) for the
// text's character classes. Immutable and thread-safe.
class PieceSplitter {
 public:
  // What matching needs besides the text; reused from call to call, by one thread at a time.
  class Scratch {
   public:
    Scratch();
    ~Scratch();

   private:
    friend class PieceSplitter;
    struct State;
    std::unique_ptr<State> state_;
  };

  // Each rule cuts the pieces of the one before. As ParseSplitPattern, and UNIMPLEMENTED if the
  // patterns tell more than 255 classes of characters apart.
  static absl::StatusOr<std::unique_ptr<PieceSplitter>> Create(const std::vector<SplitRule>& rules);
  ~PieceSplitter();

  // Gives the pieces of well-formed text in their order; they point into it. INVALID_ARGUMENT if a
  // pattern takes too many steps for this text. Time and memory are linear for patterns in which
  // an attempt that fails at a place does not look arbitrarily far ahead of it.
  absl::Status Split(std::string_view text, Scratch* scratch, PieceSink* sink) const;

 private:
  struct Compiled;
  struct Cursor;

  PieceSplitter();
  absl::Status SplitBy(size_t rule, size_t begin, size_t end, Cursor* cursor) const;

  std::unique_ptr<Compiled> compiled_;
};

}  // namespace deltafill::coordinator

#endif  // DELTAFILL_COORDINATOR_TOKENIZER_PIECE_SPLITTER_H_
