set(tokenizer_fixtures ${CMAKE_CURRENT_LIST_DIR}/tokenizer/fixtures)
deltafill_test(coordinator_tokenizer_test
  SOURCES tokenizer/bytes_test.cc tokenizer/hostile_test.cc tokenizer/library_test.cc
  LIBS deltafill_tokenizer Threads::Threads
  LABELS core concurrency)
target_compile_definitions(coordinator_tokenizer_test
  PRIVATE DELTAFILL_TOKENIZER_FIXTURES="${tokenizer_fixtures}")
