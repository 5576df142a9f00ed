# Fuzzer of what snapshots read. It takes the readers' sources themselves, built with coverage.
set(snapshot_sources
  ${CMAKE_SOURCE_DIR}/client/snapshot/ignore_rules.cc
  ${CMAKE_SOURCE_DIR}/client/snapshot/rendering.cc
  ${CMAKE_SOURCE_DIR}/client/snapshot/text_filter.cc
  ${CMAKE_SOURCE_DIR}/coordinator/tokenizer/utf8.cc
  ${CMAKE_SOURCE_DIR}/statestore/part.cc
  ${CMAKE_SOURCE_DIR}/statestore/records.cc
  ${CMAKE_SOURCE_DIR}/statestore/sha256.cc
  ${CMAKE_SOURCE_DIR}/statestore/snapshot_record_message.cc)
add_executable(snapshot_fuzz snapshot_fuzz.cc ${snapshot_sources})
target_compile_options(snapshot_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
target_link_options(snapshot_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
target_compile_definitions(snapshot_fuzz PRIVATE XXH_INLINE_ALL)
target_include_directories(snapshot_fuzz SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR})
target_link_libraries(snapshot_fuzz PRIVATE deltafill_options proto_statestore absl::status
  absl::statusor absl::strings OpenSSL::Crypto)
