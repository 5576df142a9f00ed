# Lookups against many stored boundaries; the store against the raw disk.
add_executable(lookup_bench lookup_bench.cc)
target_link_libraries(lookup_bench PRIVATE deltafill_options deltafill_statestore)
add_executable(store_bench store_bench.cc)
target_link_libraries(store_bench PRIVATE deltafill_options deltafill_statestore)
