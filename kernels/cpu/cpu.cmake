# deltafill_kernels: the CPU backend. Needs Highway, oneDNN and the OpenMP runtime oneDNN was built
# with (only to tell it to use one thread). oneDNN's own CMake package demands OpenCL, so both are
# found by hand.
find_package(Threads REQUIRED)
find_path(HWY_INCLUDE_DIR hwy/highway.h)
find_library(HWY_LIBRARY hwy)
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
find_library(DNNL_LIBRARY dnnl)
get_filename_component(deltafill_compiler_lib_dir "${CMAKE_CXX_COMPILER}" DIRECTORY)
find_library(GOMP_LIBRARY NAMES gomp libgomp.so.1
             HINTS ${CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES} ${deltafill_compiler_lib_dir}/../lib)

set(deltafill_cpu_missing "")
foreach(found HWY_INCLUDE_DIR HWY_LIBRARY DNNL_INCLUDE_DIR DNNL_LIBRARY GOMP_LIBRARY)
  if(NOT ${found})
    list(APPEND deltafill_cpu_missing ${found})
  endif()
endforeach()
if(deltafill_cpu_missing)
  if(NOT DELTAFILL_KERNELS_ONLY)
    message(FATAL_ERROR "deltafill: the CPU backend needs Highway and oneDNN (libhwy-dev, "
                        "libdnnl-dev); not found: ${deltafill_cpu_missing}")
  endif()
  message(STATUS "deltafill: building without the CPU backend; not found: ${deltafill_cpu_missing}")
  return()
endif()

add_library(deltafill_kernels STATIC
  cpu/backend.cc
  cpu/bf16_product.cc
  cpu/conv_tail.cc
  cpu/embedding.cc
  cpu/expert_routing.cc
  cpu/expert_validation.cc
  cpu/isa.cc
  cpu/lane_scratch.cc
  cpu/latent_append.cc
  cpu/latent_prefill.cc
  cpu/latent_projection.cc
  cpu/latent_step.cc
  cpu/latent_tiles.cc
  cpu/latent_validation.cc
  cpu/matmul.cc
  cpu/matmul_step.cc
  cpu/mixture_of_experts.cc
  cpu/operators.cc
  cpu/panel.cc
  cpu/panel_product.cc
  cpu/param_checks.cc
  cpu/rms_norm.cc
  cpu/short_conv.cc
  cpu/swiglu.cc
  cpu/thread_team.cc
  cpu/validate.cc
  cpu/weight.cc)
target_link_libraries(deltafill_kernels
  PUBLIC deltafill_kernels_interface deltafill_cuda_loader
  PRIVATE ${HWY_LIBRARY} ${DNNL_LIBRARY} ${GOMP_LIBRARY} Threads::Threads)
target_include_directories(deltafill_kernels SYSTEM PRIVATE ${HWY_INCLUDE_DIR} ${DNNL_INCLUDE_DIR})
# Run-time dispatch picks AVX2 or AVX-512; the baseline that remains is refused by NewCpuBackend.
target_compile_definitions(deltafill_kernels PRIVATE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4)")

include(cpu/delta_rule.cmake)
