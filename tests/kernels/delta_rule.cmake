# Included by tests/kernels: the delta-rule operators of the CPU backend.
set(delta_rule_test_sources
  delta_rule_cases.cc
  delta_rule_forward_test.cc)
deltafill_test(delta_rule_test
  SOURCES ${delta_rule_test_sources}
  LIBS deltafill_kernels deltafill_testing
  LABELS core)
