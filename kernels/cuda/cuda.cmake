# deltafill_cuda: the CUDA backend, a shared library with its own static CUDA runtime. Plans and
# checks are plain C++ in deltafill_cuda_plan, which machines without a GPU test.
add_library(deltafill_cuda_plan STATIC
  cuda/check_operators.cc cuda/check_params.cc cuda/latent_plan.cc
  cuda/mixture_plan.cc cuda/plan.cc cuda/product_plan.cc cuda/step_product_plan.cc)
target_link_libraries(deltafill_cuda_plan PUBLIC deltafill_kernels_interface)

# ptxas's report of a compilation goes to its output; the spill test reads a compilation of its own.
set(DELTAFILL_CUDA_FLAGS $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)

# Plain instructions: sm_80 as machine code and PTX, so that later cards run it too.
add_library(deltafill_cuda_portable OBJECT
  cuda/portable_k32.cu cuda/portable_k64.cu cuda/portable_k128.cu
  cuda/element_rows.cu cuda/grouped_portable.cu cuda/latent_append.cu cuda/latent_prefill.cu
  cuda/latent_step.cu cuda/mixture_routing.cu cuda/product_probe.cu cuda/recurrent.cu
  cuda/rms_norm.cu cuda/router_logits.cu cuda/short_conv.cu cuda/step_product_portable.cu)
set_target_properties(deltafill_cuda_portable PROPERTIES CUDA_ARCHITECTURES "80;90-real")

# Tuned for Hopper.
add_library(deltafill_cuda_sm90 OBJECT
  cuda/dense_hopper.cu cuda/grouped_hopper.cu cuda/gated_norm_hopper.cu
  cuda/latent_hopper.cu cuda/ring_kernel_k128.cu cuda/step_product_hopper.cu)
set_target_properties(deltafill_cuda_sm90 PROPERTIES CUDA_ARCHITECTURES "90a-real")

foreach(target deltafill_cuda_portable deltafill_cuda_sm90)
  target_link_libraries(${target} PRIVATE deltafill_kernels_interface)
  target_compile_options(${target} PRIVATE ${DELTAFILL_CUDA_FLAGS})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endforeach()

add_library(deltafill_cuda SHARED
  cuda/backend.cc cuda/c_api.cc cuda/dense_product.cc cuda/forward.cc
  cuda/grouped_hopper.cc cuda/gated_norm_product.cc cuda/latent_hopper.cc cuda/mixture.cc
  cuda/operators.cc cuda/operators_fused.cc cuda/operators_latent.cc cuda/operators_latent_prefill.cc
  cuda/operators_matmul.cc cuda/operators_mixture.cc
  cuda/operators_recording.cc cuda/operators_step.cc cuda/product.cc cuda/product_probe.cc
  cuda/recording.cc cuda/runtime.cc cuda/step_product.cc cuda/tensor_map.cc cuda/weight.cc
  $<TARGET_OBJECTS:deltafill_cuda_portable> $<TARGET_OBJECTS:deltafill_cuda_sm90>)
target_link_libraries(deltafill_cuda
  PUBLIC deltafill_cuda_plan PRIVATE deltafill_cuda_interface CUDA::cublasLt CUDA::cudart_static)
target_include_directories(deltafill_cuda PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
# Beside the executables, where it is looked for.
set_target_properties(deltafill_cuda PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
