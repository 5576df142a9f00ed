# The KDA kernels' benchmarks: need a CUDA device to run.
if(TARGET deltafill_cuda)
  foreach(name kda_forward_bench kda_rows_bench)
    add_executable(${name} ${name}.cc)
    target_link_libraries(${name} PRIVATE deltafill_cuda deltafill_options CUDA::cudart_static)
  endforeach()
  if(TARGET deltafill_backend_testing)
    add_executable(model_walk_bench model_walk_bench.cc)
    target_link_libraries(model_walk_bench PRIVATE deltafill_backend_testing deltafill_options)
    add_executable(hybrid_cuda_bench hybrid_cuda_bench.cc)
    target_link_libraries(hybrid_cuda_bench PRIVATE
      deltafill_backend_testing deltafill_cuda deltafill_options CUDA::cudart_static)
  endif()
endif()
