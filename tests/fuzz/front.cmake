# Fuzzer of state handles. It takes the reader's sources themselves, built with coverage.
set(front ${CMAKE_SOURCE_DIR}/coordinator/front)
add_executable(handle_fuzz handle_fuzz.cc ${front}/handle.cc ${front}/lower_hex.cc)
target_compile_options(handle_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
target_link_options(handle_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
target_compile_definitions(handle_fuzz PRIVATE XXH_INLINE_ALL)
target_include_directories(handle_fuzz SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR})
target_link_libraries(handle_fuzz PRIVATE deltafill_options absl::status absl::statusor
  absl::strings)
