# The Python package, with messages and stubs made from the protos: an importable folder
# ${CMAKE_BINARY_DIR}/python that pip can install from. Needs protoc's Python plugin; testing it
# needs a Python with grpcio, protobuf and numpy.
find_program(GRPC_PYTHON_PLUGIN grpc_python_plugin)
if(NOT GRPC_PYTHON_PLUGIN)
  message(STATUS "deltafill: no grpc_python_plugin, the Python package is not built")
  return()
endif()

set(source ${CMAKE_CURRENT_SOURCE_DIR}/python/deltafill)
set(out ${CMAKE_BINARY_DIR}/python)
set(modules __init__.py client.py errors.py state.py)
set(generated ${out}/deltafill/prefill_pb2.py ${out}/deltafill/prefill_pb2_grpc.py)
list(TRANSFORM modules PREPEND ${source}/ OUTPUT_VARIABLE module_files)
configure_file(python/pyproject.toml.in ${out}/pyproject.toml @ONLY)
# Modules import each other by the proto's path: it must be that of the package.
add_custom_command(
  OUTPUT ${generated}
  COMMAND ${CMAKE_COMMAND} -E copy_if_different ${module_files} ${out}/deltafill
  COMMAND ${CMAKE_COMMAND} -E copy_if_different ${CMAKE_SOURCE_DIR}/proto/prefill.proto
    ${out}/deltafill
  COMMAND protobuf::protoc --proto_path=${out} --python_out=${out} --grpc_out=${out}
    --plugin=protoc-gen-grpc=${GRPC_PYTHON_PLUGIN} ${out}/deltafill/prefill.proto
  DEPENDS ${module_files} ${CMAKE_SOURCE_DIR}/proto/prefill.proto
  VERBATIM)
file(MAKE_DIRECTORY ${out}/deltafill)
add_custom_target(python_package ALL DEPENDS ${generated})
