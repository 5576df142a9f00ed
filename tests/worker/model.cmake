# Tests of worker/model.
add_library(deltafill_model_testing STATIC model_fixture.cc)
target_link_libraries(deltafill_model_testing PUBLIC deltafill_model deltafill_testing GTest::gtest)
target_compile_definitions(deltafill_model_testing
  PRIVATE DELTAFILL_WORKER_FIXTURES="${CMAKE_CURRENT_SOURCE_DIR}/fixtures")

deltafill_test(model_reference_test
  SOURCES model_reference_test.cc
  LIBS deltafill_model_testing
  LABELS core)
deltafill_test(model_config_test
  SOURCES model_config_test.cc
  LIBS deltafill_model nlohmann_json::nlohmann_json
  LABELS core)
deltafill_test(model_fla_config_test
  SOURCES model_fla_config_test.cc
  LIBS deltafill_model nlohmann_json::nlohmann_json
  LABELS core)
deltafill_test(model_safetensors_test
  SOURCES model_safetensors_test.cc
  LIBS deltafill_model_testing
  LABELS core)
deltafill_test(model_load_test
  SOURCES model_load_test.cc
  LIBS deltafill_model_testing nlohmann_json::nlohmann_json
  LABELS core)
deltafill_test(model_random_test
  SOURCES model_random_test.cc
  LIBS deltafill_model_testing
  LABELS core)
deltafill_test(model_prefill_test
  SOURCES model_prefill_test.cc
  LIBS deltafill_model_testing
  LABELS core)
deltafill_test(model_hybrid_test
  SOURCES model_hybrid_test.cc
  LIBS deltafill_model_testing
  LABELS core)
deltafill_test(model_hybrid_port_test
  SOURCES model_hybrid_port_test.cc
  LIBS deltafill_model_testing
  LABELS core)
deltafill_test(model_golden_test
  SOURCES model_golden_test.cc
  LIBS deltafill_model_testing
  LABELS core)
add_test(NAME model_golden_test_avx2 COMMAND model_golden_test)
set_tests_properties(model_golden_test_avx2 PROPERTIES
  LABELS core TIMEOUT 300 ENVIRONMENT DELTAFILL_TEST_ISA=avx2)
if(TARGET deltafill_cuda_plan)
  deltafill_test(preset_cuda_test
    SOURCES preset_cuda_test.cc
    LIBS deltafill_model deltafill_cuda_plan
    LABELS core)
endif()
