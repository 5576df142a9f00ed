# Tests of worker/exchange and worker/runtime.
function(deltafill_runtime_test name)
  cmake_parse_arguments(ARG "" "" "LABELS;LIBS" ${ARGN})
  deltafill_test(${name}
    SOURCES ${name}.cc
    LIBS deltafill_runtime deltafill_testing_fakes ${ARG_LIBS}
    LABELS ${ARG_LABELS}
    TIMEOUT 120)
endfunction()

deltafill_runtime_test(exchange_mailbox_test LABELS core concurrency)
deltafill_runtime_test(exchange_transport_test LABELS core concurrency LIBS proto_worker)
deltafill_runtime_test(runtime_prefill_lane_test LABELS core concurrency)
deltafill_runtime_test(runtime_decode_lane_test LABELS core concurrency)
deltafill_runtime_test(runtime_latents_test LABELS core concurrency)
deltafill_runtime_test(runtime_agent_test LABELS core concurrency LIBS proto_worker)
deltafill_runtime_test(runtime_worker_test LABELS core concurrency LIBS proto_worker)
deltafill_runtime_test(runtime_identity_test LABELS core concurrency LIBS deltafill_model_testing)

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
