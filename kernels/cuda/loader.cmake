# deltafill_cuda_loader: opens the CUDA backend's library at run time; part of the static core, with
# or without nvcc. Both sides are given the id of the interface that they are built from.
set(deltafill_interface_id "")
foreach(header operators.h delta_rule.h latent_attention.h mixture_of_experts.h tensor.h status.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${CMAKE_CURRENT_SOURCE_DIR}/${header})
  file(SHA256 ${CMAKE_CURRENT_SOURCE_DIR}/${header} deltafill_header_hash)
  string(APPEND deltafill_interface_id ${deltafill_header_hash})
endforeach()
string(SHA256 deltafill_interface_id ${deltafill_interface_id})
string(SUBSTRING ${deltafill_interface_id} 0 16 deltafill_interface_id)
string(REGEX MATCH "^[0-9]+" deltafill_compiler_major ${CMAKE_CXX_COMPILER_VERSION})
string(APPEND deltafill_interface_id "-${CMAKE_CXX_COMPILER_ID}-${deltafill_compiler_major}")

add_library(deltafill_cuda_interface INTERFACE)
target_link_libraries(deltafill_cuda_interface INTERFACE deltafill_kernels_interface)
target_compile_definitions(deltafill_cuda_interface INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:DELTAFILL_KERNELS_INTERFACE_ID="${deltafill_interface_id}">)

add_library(deltafill_cuda_loader STATIC cuda/open_backend.cc cuda/open_library.cc)
target_link_libraries(deltafill_cuda_loader
  PUBLIC deltafill_kernels_interface PRIVATE deltafill_cuda_interface ${CMAKE_DL_LIBS})
