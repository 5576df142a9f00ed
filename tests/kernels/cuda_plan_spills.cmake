# Compiles the tuned kernels and fails if ptxas reports spills, a stack frame or serialised
# matrix products.
foreach(unit IN ITEMS "ring_kernel_k128:90a" "portable_k128:90" "recurrent:90"
    "grouped_hopper:90a" "latent_hopper:90a" "step_product_hopper:90a")
  string(REPLACE ":" ";" parts ${unit})
  list(GET parts 0 name)
  list(GET parts 1 arch)
  execute_process(
    COMMAND ${NVCC} -std=c++20 -O3 -I${SOURCE_DIR} --expt-relaxed-constexpr
      -gencode=arch=compute_${arch},code=sm_${arch} -Xptxas -v
      -c ${SOURCE_DIR}/kernels/cuda/${name}.cu -o ${OUT}
    OUTPUT_VARIABLE report ERROR_VARIABLE report RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${name}.cu does not compile:\n${report}")
  endif()
  if(NOT report MATCHES "bytes spill stores")
    message(FATAL_ERROR "${name}.cu: no report from ptxas")
  endif()
  if(report MATCHES "[1-9][0-9]* bytes (spill|stack)" OR report MATCHES "C75(10|11|12|14)")
    message(FATAL_ERROR "${name}.cu spills or serialises:\n${report}")
  endif()
endforeach()
