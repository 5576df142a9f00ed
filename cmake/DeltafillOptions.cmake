# Language level, warnings, sanitizers and tools that every target shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

# Own code is compiled with these; generated code is not.
add_library(deltafill_options INTERFACE)
target_include_directories(deltafill_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(deltafill_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-missing-field-initializers -Werror=return-type
    -Werror=unused-result -fno-omit-frame-pointer>)

# Bits must not depend on what the compiler fuses or reorders: products are fused where the code says so.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

if(DELTAFILL_SANITIZER)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${DELTAFILL_SANITIZER}>)
  add_link_options(-fsanitize=${DELTAFILL_SANITIZER})
endif()
