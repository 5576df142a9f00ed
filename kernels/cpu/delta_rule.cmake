# Included by cpu.cmake: the delta-rule operators.
target_sources(deltafill_kernels PRIVATE
  cpu/delta_rule.cc
  cpu/delta_rule_kernels.cc
  cpu/delta_rule_validation.cc)
