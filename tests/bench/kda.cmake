# The KDA kernels' benchmarks: need a CUDA device to run.
if(TARGET deltafill_cuda)
  add_executable(kda_forward_bench kda_forward_bench.cc)
  target_link_libraries(kda_forward_bench PRIVATE deltafill_cuda deltafill_options
    CUDA::cudart_static)
endif()
