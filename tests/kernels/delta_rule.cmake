# Included by tests/kernels: the delta-rule operators of the CPU backend, with the best instruction
# set of the machine and with AVX2.
add_library(delta_rule_tests OBJECT
  delta_rule_adversarial_test.cc
  delta_rule_bits_test.cc
  delta_rule_cases.cc
  delta_rule_forward_test.cc
  delta_rule_step_test.cc
  delta_rule_summary_test.cc
  delta_rule_validation_test.cc)
target_link_libraries(delta_rule_tests PRIVATE deltafill_options deltafill_testing GTest::gmock)
deltafill_test(delta_rule_test
  SOURCES $<TARGET_OBJECTS:delta_rule_tests>
  LIBS deltafill_kernels deltafill_testing
  LABELS core)
deltafill_test(delta_rule_avx2_test
  SOURCES $<TARGET_OBJECTS:delta_rule_tests> delta_rule_avx2.cc
  LIBS deltafill_kernels deltafill_testing
  LABELS core)
