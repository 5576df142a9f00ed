# Fuzzers of the state store's formats; their seeds are written when they are built.
set(store ${CMAKE_SOURCE_DIR}/statestore)
set(part_sources ${store}/part.cc ${store}/sha256.cc)
set(manifest_sources ${part_sources} ${store}/manifest_message.cc ${store}/records.cc)

add_executable(statestore_seed_writer seed_writer.cc ${manifest_sources})
set(statestore_fuzz_targets statestore_seed_writer)
foreach(format part manifest)
  add_executable(${format}_fuzz ${format}_fuzz.cc ${${format}_sources})
  target_compile_options(${format}_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_options(${format}_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
  set(seeds ${CMAKE_BINARY_DIR}/fuzz_seeds)
  add_custom_command(TARGET ${format}_fuzz POST_BUILD
    COMMAND $<TARGET_FILE:statestore_seed_writer> ${seeds} VERBATIM)
  add_dependencies(${format}_fuzz statestore_seed_writer)
  list(APPEND statestore_fuzz_targets ${format}_fuzz)
endforeach()
foreach(target ${statestore_fuzz_targets})
  target_compile_definitions(${target} PRIVATE XXH_INLINE_ALL)
  target_include_directories(${target} SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR})
  target_link_libraries(${target} PRIVATE deltafill_options proto_statestore absl::status
    absl::statusor absl::strings OpenSSL::Crypto)
endforeach()
