# Plans of the CUDA backend: need nvcc's build, not a device.
if(TARGET deltafill_cuda_plan)
  deltafill_test(cuda_plan_test
    SOURCES cuda_plan_test.cc
    LIBS deltafill_cuda_plan
    LABELS core)

  # No spills or local memory in the tuned kernels: reads the compiler's own report.
  add_test(NAME cuda_spill_test
    COMMAND ${CMAKE_COMMAND} -DNVCC=${CMAKE_CUDA_COMPILER} -DSOURCE_DIR=${CMAKE_SOURCE_DIR}
      -DOUT=${CMAKE_CURRENT_BINARY_DIR}/cuda_spill_test.o
      -P ${CMAKE_CURRENT_SOURCE_DIR}/cuda_plan_spills.cmake)
  set_tests_properties(cuda_spill_test PROPERTIES LABELS core TIMEOUT 300)
endif()
