# Fuzzers of the state store's formats; their seeds are written when they are built.
set(store ${CMAKE_SOURCE_DIR}/statestore)
set(part_sources ${store}/part.cc ${store}/sha256.cc)
set(manifest_sources ${part_sources} ${store}/manifest_message.cc ${store}/records.cc)

add_executable(statestore_seed_writer seed_writer.cc ${manifest_sources})
set(statestore_fuzz_targets statestore_seed_writer)
foreach(format part manifest)
  add_executable(fuzz_${format} ${format}_fuzz.cc ${${format}_sources})
  target_compile_options(fuzz_${format} PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_options(fuzz_${format} PRIVATE -fsanitize=fuzzer,address,undefined)
  set(seeds ${CMAKE_BINARY_DIR}/fuzz_seeds)
  add_custom_command(TARGET fuzz_${format} POST_BUILD
    COMMAND $<TARGET_FILE:statestore_seed_writer> ${seeds} VERBATIM)
  add_dependencies(fuzz_${format} statestore_seed_writer)
  add_test(NAME fuzz_${format}
    COMMAND fuzz_${format} -max_total_time=20 -rss_limit_mb=1024 ${seeds}/${format})
  set_tests_properties(fuzz_${format} PROPERTIES LABELS fuzz TIMEOUT 120)
  list(APPEND statestore_fuzz_targets fuzz_${format})
endforeach()
foreach(target ${statestore_fuzz_targets})
  target_compile_definitions(${target} PRIVATE XXH_INLINE_ALL)
  target_include_directories(${target} SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR})
  target_link_libraries(${target} PRIVATE deltafill_options proto_statestore absl::status
    absl::statusor absl::strings OpenSSL::Crypto)
endforeach()
