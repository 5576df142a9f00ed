#include "coordinator/tokenizer/piece_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/character_classes.h"
#include "coordinator/tokenizer/class_pattern.h"
#include "coordinator/tokenizer/split_pattern.h"

namespace deltafill::coordinator {
namespace {

constexpr size_t kRulesMax = 16;
constexpr size_t kJitStackBytesMin = size_t{32} << 10;
constexpr size_t kJitStackBytesMax = size_t{16} << 20;

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

struct Rule {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  bool just_in_time = false;
  bool keep_matches = true;
  bool keep_rest = true;
};

absl::StatusOr<Rule> CompileRule(const SplitRule& rule, const std::string& class_pattern) {
  int error = 0;
  PCRE2_SIZE where = 0;
  Rule compiled;
  compiled.keep_matches = rule.keep_matches;
  compiled.keep_rest = rule.keep_rest;
  compiled.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(class_pattern.data()),
                                    class_pattern.size(), PCRE2_NEVER_UTF | PCRE2_NEVER_UCP, &error,
                                    &where, nullptr));
  if (compiled.code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof message);
    return absl::InvalidArgumentError(
        absl::StrCat("pattern: ", reinterpret_cast<const char*>(message)));
  }
  compiled.just_in_time = pcre2_jit_compile(compiled.code.get(), PCRE2_JIT_COMPLETE) == 0;
  return compiled;
}

}  // namespace

struct PieceSplitter::Scratch::State {
  State()
      : match(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kJitStackBytesMin, kJitStackBytesMax, nullptr)) {
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  pcre2_match_data* const match;
  pcre2_match_context* const context;
  pcre2_jit_stack* const stack;
  std::string classes;
};

PieceSplitter::Scratch::Scratch() : state_(std::make_unique<State>()) {}
PieceSplitter::Scratch::~Scratch() = default;

struct PieceSplitter::Compiled {
  explicit Compiled(CharacterClasses of_sets) : classes(std::move(of_sets)) {}

  CharacterClasses classes;
  std::vector<Rule> rules;
};

PieceSplitter::PieceSplitter() = default;
PieceSplitter::~PieceSplitter() = default;

absl::StatusOr<std::unique_ptr<PieceSplitter>> PieceSplitter::Create(
    const std::vector<SplitRule>& rules) {
  if (rules.size() > kRulesMax) {
    return absl::InvalidArgumentError(absl::StrCat("more than ", kRulesMax, " patterns"));
  }
  std::vector<SplitPattern> patterns;
  std::vector<CodePointSet> sets;
  for (const SplitRule& rule : rules) {
    absl::StatusOr<SplitPattern> pattern = ParseSplitPattern(rule.pattern);
    if (!pattern.ok()) return pattern.status();
    patterns.push_back(*std::move(pattern));
    sets.insert(sets.end(), patterns.back().sets.begin(), patterns.back().sets.end());
  }
  absl::StatusOr<CharacterClasses> classes = CharacterClasses::Of(sets);
  if (!classes.ok()) return classes.status();
  std::unique_ptr<PieceSplitter> splitter(new PieceSplitter());
  splitter->compiled_ = std::make_unique<Compiled>(*std::move(classes));
  size_t first_set = 0;
  for (size_t i = 0; i < rules.size(); ++i) {
    absl::StatusOr<Rule> rule =
        CompileRule(rules[i], ClassPattern(patterns[i], splitter->compiled_->classes, first_set));
    if (!rule.ok()) return rule.status();
    splitter->compiled_->rules.push_back(*std::move(rule));
    first_set += patterns[i].sets.size();
  }
  return splitter;
}

// Where the splitting stands. Positions count code points; pieces come in ascending order, so the
// place in bytes moves along.
struct PieceSplitter::Cursor {
  std::string_view text;
  bool ascii;
  Scratch::State* state;
  PieceSink* sink;
  size_t code_point = 0;
  size_t byte = 0;

  size_t ByteOf(size_t position) {
    if (ascii) return position;
    for (; code_point < position; ++code_point) byte += Utf8BytesByLead(text[byte]);
    return byte;
  }
};

absl::Status PieceSplitter::Split(std::string_view text, Scratch* scratch, PieceSink* sink) const {
  Scratch::State* state = scratch->state_.get();
  if (compiled_->rules.empty()) {
    if (!text.empty()) sink->OnPiece(text);
    return absl::OkStatus();
  }
  const bool ascii = compiled_->classes.Classify(text, &state->classes);
  Cursor cursor{.text = text, .ascii = ascii, .state = state, .sink = sink};
  return SplitBy(0, 0, state->classes.size(), &cursor);
}

absl::Status PieceSplitter::SplitBy(size_t rule, size_t begin, size_t end, Cursor* cursor) const {
  if (begin == end) return absl::OkStatus();
  if (rule == compiled_->rules.size()) {
    const size_t first = cursor->ByteOf(begin);
    cursor->sink->OnPiece(cursor->text.substr(first, cursor->ByteOf(end) - first));
    return absl::OkStatus();
  }
  const Rule& splits = compiled_->rules[rule];
  const auto subject = reinterpret_cast<PCRE2_SPTR>(cursor->state->classes.data() + begin);
  const size_t length = end - begin;
  const auto match = splits.just_in_time ? pcre2_jit_match : pcre2_match;
  pcre2_match_data* const matched = cursor->state->match;
  const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(matched);
  for (size_t at = 0; at < length;) {
    const int found =
        match(splits.code.get(), subject, length, at, 0, matched, cursor->state->context);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
      return absl::InvalidArgumentError(absl::StrCat(
          "text: the tokenizer's pattern takes too many steps for it (PCRE2 error ", found, ")"));
    }
    const size_t from = found < 0 ? length : bounds[0];
    const size_t to = found < 0 ? length : bounds[1];
    if (splits.keep_rest && from > at) {
      absl::Status status = SplitBy(rule + 1, begin + at, begin + from, cursor);
      if (!status.ok()) return status;
    }
    if (splits.keep_matches && to > from) {
      absl::Status status = SplitBy(rule + 1, begin + from, begin + to, cursor);
      if (!status.ok()) return status;
    }
    at = std::max(to, at + 1);
  }
  return absl::OkStatus();
}

}  // namespace deltafill::coordinator
