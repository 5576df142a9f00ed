# Included by tests/bench: a whole model's prefill by kind of layer, on a CPU or a card.
if(TARGET deltafill_worker)
  add_executable(model_prefill_bench model_prefill_bench.cc model_sections.cc)
  target_link_libraries(model_prefill_bench PRIVATE
    deltafill_worker deltafill_model deltafill_cuda_loader deltafill_testing)
endif()
