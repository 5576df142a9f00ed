# The float64 token recurrence, shared by the CPU and CUDA tests: plain C++, no other library.
target_sources(deltafill_testing PRIVATE delta_rule_reference.cc)
