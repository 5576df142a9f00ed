# Tests of worker/exchange and worker/runtime. TWICE: once more with states in a fake device's memory.
function(deltafill_runtime_test name)
  cmake_parse_arguments(ARG "TWICE" "" "LABELS;LIBS" ${ARGN})
  deltafill_test(${name}
    SOURCES ${name}.cc
    LIBS deltafill_runtime deltafill_testing_fakes ${ARG_LIBS}
    LABELS ${ARG_LABELS}
    TIMEOUT 120)
  if(ARG_TWICE)
    add_test(NAME ${name}_device COMMAND ${name})
    set_tests_properties(${name}_device PROPERTIES
      LABELS "${ARG_LABELS}" TIMEOUT 120 ENVIRONMENT DELTAFILL_TEST_MEMORY=device)
  endif()
endfunction()

deltafill_runtime_test(cost_probe_test LABELS core)
deltafill_runtime_test(exchange_mailbox_test LABELS core concurrency)
deltafill_runtime_test(exchange_device_link_test LABELS core concurrency LIBS proto_worker)
deltafill_runtime_test(exchange_transport_test LABELS core concurrency LIBS proto_worker)
deltafill_runtime_test(runtime_prefill_lane_test TWICE LABELS core concurrency)
deltafill_runtime_test(runtime_part_readers_test LABELS core concurrency)
deltafill_runtime_test(runtime_start_state_test TWICE LABELS core concurrency)
deltafill_runtime_test(runtime_decode_lane_test TWICE LABELS core concurrency)
deltafill_runtime_test(runtime_sampler_test LABELS core)
deltafill_runtime_test(runtime_latents_test TWICE LABELS core concurrency)
deltafill_runtime_test(runtime_agent_test LABELS core concurrency LIBS proto_worker)
deltafill_runtime_test(runtime_worker_test TWICE LABELS core concurrency LIBS proto_worker)
deltafill_runtime_test(runtime_identity_test TWICE LABELS core concurrency
  LIBS deltafill_model_testing deltafill_worker)

deltafill_test(nccl_loader_test SOURCES nccl_loader_test.cc LIBS deltafill_nccl_loader LABELS core)
if(TARGET deltafill_nccl)
  target_compile_definitions(nccl_loader_test PRIVATE
    DELTAFILL_TEST_NCCL_LIBRARY="$<TARGET_FILE:deltafill_nccl>")
  add_dependencies(nccl_loader_test deltafill_nccl)
endif()
deltafill_test(memory_plan_test
  SOURCES memory_plan_test.cc
  LIBS deltafill_worker deltafill_model_testing
  LABELS core)
