add_library(coordinator_front_fixture STATIC front_fake_engine.cc front_fixture.cc)
target_link_libraries(coordinator_front_fixture
  PUBLIC deltafill_front proto_prefill statestore_fixture deltafill_options GTest::gtest)

deltafill_test(coordinator_handle_test SOURCES handle_test.cc LIBS deltafill_front LABELS core)
deltafill_test(coordinator_tenant_resolver_test SOURCES tenant_resolver_test.cc
  LIBS deltafill_front LABELS core)
deltafill_test(coordinator_layout_test SOURCES layout_test.cc LIBS deltafill_front LABELS core)
deltafill_test(coordinator_front_request_test SOURCES front_request_test.cc
  LIBS coordinator_front_fixture LABELS core)
deltafill_test(coordinator_front_prefill_test SOURCES front_prefill_test.cc
  LIBS coordinator_front_fixture LABELS core concurrency)
deltafill_test(coordinator_front_pieces_test SOURCES front_pieces_test.cc
  LIBS coordinator_front_fixture LABELS core concurrency)
deltafill_test(coordinator_front_failure_test SOURCES front_failure_test.cc
  LIBS coordinator_front_fixture LABELS core concurrency)
deltafill_test(coordinator_front_server_test SOURCES front_server_test.cc
  LIBS coordinator_front_fixture LABELS core)
deltafill_test(coordinator_front_tls_test SOURCES front_tls_test.cc
  LIBS coordinator_front_fixture OpenSSL::Crypto LABELS core)
deltafill_test(coordinator_front_state_test SOURCES front_state_test.cc
  LIBS coordinator_front_fixture LABELS core)
deltafill_test(coordinator_front_decode_test SOURCES front_decode_test.cc
  LIBS coordinator_front_fixture LABELS core concurrency)
