# Fuzzer of tokenizer files and of encoding. It takes the sources themselves, built with coverage.
add_executable(tokenizer_fuzz tokenizer_fuzz.cc ${DELTAFILL_TOKENIZER_SOURCES})
target_compile_options(tokenizer_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
target_link_options(tokenizer_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
target_include_directories(tokenizer_fuzz SYSTEM PRIVATE
  ${PCRE2_INCLUDE_DIR} ${UTF8PROC_INCLUDE_DIR} ${XXHASH_INCLUDE_DIR})
target_link_libraries(tokenizer_fuzz PRIVATE deltafill_options nlohmann_json::nlohmann_json
  absl::statusor absl::strings absl::str_format absl::flat_hash_map absl::flat_hash_set
  ${PCRE2_LIBRARY} ${UTF8PROC_LIBRARY})
file(COPY ${CMAKE_CURRENT_LIST_DIR}/seeds/tokenizer DESTINATION ${CMAKE_BINARY_DIR}/fuzz_seeds)
