# Tests of worker/model.
add_library(deltafill_model_testing STATIC model_fixture.cc)
target_link_libraries(deltafill_model_testing PUBLIC deltafill_model deltafill_testing GTest::gtest)
target_compile_definitions(deltafill_model_testing
  PRIVATE DELTAFILL_WORKER_FIXTURES="${CMAKE_CURRENT_SOURCE_DIR}/fixtures")

deltafill_test(model_reference_test
  SOURCES model_reference_test.cc
  LIBS deltafill_model_testing
  LABELS core)
