# The KDA kernels' benchmarks: need a CUDA device to run.
if(TARGET deltafill_cuda)
  foreach(name kda_forward_bench kda_rows_bench)
    add_executable(${name} ${name}.cc)
    target_link_libraries(${name} PRIVATE deltafill_cuda deltafill_options CUDA::cudart_static)
  endforeach()
endif()
