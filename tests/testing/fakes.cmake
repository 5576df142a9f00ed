# deltafill_testing_fakes: a toy model, a store that can be held up, recorders and a coordinator for
# tests of the worker's runtime.
if(TARGET proto_worker)
  add_library(deltafill_testing_fakes STATIC
    fake_coordinator.cc
    fake_device.cc
    fake_device_calls.cc
    fake_device_lane.cc
    fake_device_link.cc
    fake_model.cc
    held_store.cc)
  target_link_libraries(deltafill_testing_fakes
    PUBLIC deltafill_runtime deltafill_model deltafill_statestore
    PRIVATE proto_worker Threads::Threads)
endif()
