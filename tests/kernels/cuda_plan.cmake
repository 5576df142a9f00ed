# Opening the CUDA backend's library, with and without nvcc.
foreach(name refusing empty)
  add_library(${name}_cuda_library MODULE ${name}_cuda_library.cc)
  target_link_libraries(${name}_cuda_library PRIVATE deltafill_cuda_interface)
endforeach()
deltafill_test(cuda_loader_test
  SOURCES cuda_loader_test.cc
  LIBS deltafill_cuda_loader
  LABELS core)
target_compile_definitions(cuda_loader_test PRIVATE
  DELTAFILL_TEST_REFUSING_LIBRARY="$<TARGET_FILE:refusing_cuda_library>"
  DELTAFILL_TEST_EMPTY_LIBRARY="$<TARGET_FILE:empty_cuda_library>"
  $<$<TARGET_EXISTS:deltafill_cuda>:DELTAFILL_TEST_CUDA_LIBRARY="$<TARGET_FILE:deltafill_cuda>">)
add_dependencies(cuda_loader_test refusing_cuda_library empty_cuda_library)

# Plans of the CUDA backend: need nvcc's build, not a device.
if(TARGET deltafill_cuda_plan)
  add_dependencies(cuda_loader_test deltafill_cuda)
  foreach(name product latent mixture)
    deltafill_test(cuda_${name}_plan_test
      SOURCES cuda_${name}_plan_test.cc
      LIBS deltafill_cuda_plan
      LABELS core)
  endforeach()
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
