# Included by tests/bench: the wavefront's efficiency from measured layer times.
if(TARGET deltafill_worker)
  add_executable(wavefront_grid_bench wavefront_grid_bench.cc)
  target_link_libraries(wavefront_grid_bench PRIVATE deltafill_planning deltafill_worker)
endif()
