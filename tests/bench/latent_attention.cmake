# Included by tests/bench: the CPU's latent attention and mixture of experts against sgemm.
if(TARGET deltafill_kernels)
  add_executable(latent_attention_bench latent_attention_bench.cc)
  target_include_directories(latent_attention_bench SYSTEM PRIVATE ${DNNL_INCLUDE_DIR})
  target_link_libraries(latent_attention_bench PRIVATE
    deltafill_options deltafill_kernels ${DNNL_LIBRARY} ${GOMP_LIBRARY})
endif()
