# Fuzzers of the model's readers. They take the readers' sources themselves, built with coverage.
set(model ${CMAKE_SOURCE_DIR}/worker/model)
foreach(reader config safetensors)
  add_executable(${reader}_fuzz ${reader}_fuzz.cc
    ${model}/config.cc ${model}/config_fla_kda.cc ${model}/config_hybrid.cc
    ${model}/config_kimi_linear.cc ${model}/config_section.cc ${model}/safetensors.cc
    ${model}/strict_json.cc)
  target_compile_options(${reader}_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_options(${reader}_fuzz PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_libraries(${reader}_fuzz PRIVATE deltafill_options absl::status absl::statusor
                                               absl::strings nlohmann_json::nlohmann_json)
endforeach()
# The fixtures' files are the seeds.
set(seeds ${CMAKE_BINARY_DIR}/fuzz_seeds)
file(GLOB fixtures ${CMAKE_SOURCE_DIR}/tests/worker/fixtures/*)
foreach(fixture ${fixtures})
  cmake_path(GET fixture FILENAME name)
  file(GLOB configs ${fixture}/config.json)
  foreach(config ${configs})
    configure_file(${config} ${seeds}/config/${name}.json COPYONLY)
  endforeach()
endforeach()
file(GLOB_RECURSE states ${CMAKE_SOURCE_DIR}/tests/worker/fixtures/*.safetensors)
file(COPY ${states} DESTINATION ${seeds}/safetensors)
