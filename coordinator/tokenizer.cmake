# deltafill_tokenizer: text to token ids and back.
find_path(PCRE2_INCLUDE_DIR pcre2.h REQUIRED)
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
find_path(UTF8PROC_INCLUDE_DIR utf8proc.h REQUIRED)
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)

set(DELTAFILL_TOKENIZER_SOURCES
  added_tokens.cc
  bpe_model.cc
  bytes_tokenizer.cc
  character_classes.cc
  class_pattern.cc
  code_point_set.cc
  huggingface_bpe.cc
  huggingface_file.cc
  huggingface_pre_tokenizer.cc
  huggingface_tokenizer.cc
  normal_form.cc
  pair_merging.cc
  pattern_reader.cc
  piece_encoder.cc
  piece_splitter.cc
  split_pattern.cc
  tiktoken_file.cc
  tiktoken_tokenizer.cc
  token_bytes.cc
  tokenizer.cc
  utf8.cc)
list(TRANSFORM DELTAFILL_TOKENIZER_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/tokenizer/)
# For the fuzzer, which builds the sources itself.
set(DELTAFILL_TOKENIZER_SOURCES ${DELTAFILL_TOKENIZER_SOURCES} CACHE INTERNAL "")

add_library(deltafill_tokenizer STATIC ${DELTAFILL_TOKENIZER_SOURCES})
target_include_directories(deltafill_tokenizer SYSTEM PRIVATE
  ${PCRE2_INCLUDE_DIR} ${UTF8PROC_INCLUDE_DIR} ${XXHASH_INCLUDE_DIR})
target_link_libraries(deltafill_tokenizer
  PUBLIC absl::statusor
  PRIVATE deltafill_options nlohmann_json::nlohmann_json absl::strings absl::str_format
    absl::flat_hash_map absl::flat_hash_set ${PCRE2_LIBRARY} ${UTF8PROC_LIBRARY})
