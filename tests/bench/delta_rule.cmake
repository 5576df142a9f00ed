# Included by tests/bench: the CPU delta rule against sgemm.
if(TARGET deltafill_kernels)
  add_executable(delta_rule_bench delta_rule_bench.cc)
  target_link_libraries(delta_rule_bench PRIVATE deltafill_options deltafill_kernels)
endif()
