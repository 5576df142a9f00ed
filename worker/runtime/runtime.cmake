# deltafill_runtime: the lanes that run what the coordinator gives, and the worker made of them.
add_library(deltafill_runtime STATIC
  runtime/attempt_book.cc
  runtime/boundary_saver.cc
  runtime/command_checks.cc
  runtime/cost_probe.cc
  runtime/decode_lane.cc
  runtime/decode_start.cc
  runtime/decode_turns.cc
  runtime/finite_scan.cc
  runtime/first_range.cc
  runtime/hand_over.cc
  runtime/latent_loading.cc
  runtime/latent_pieces.cc
  runtime/latent_pool.cc
  runtime/latent_rows.cc
  runtime/latent_shelf.cc
  runtime/part_access.cc
  runtime/part_readers.cc
  runtime/prefill_lane.cc
  runtime/range_port.cc
  runtime/sampler.cc
  runtime/state_parts.cc
  runtime/state_pool.cc
  runtime/stored_state.cc
  runtime/wire_commands.cc
  runtime/wire_events.cc
  runtime/worker.cc
  runtime/worker_agent.cc)
target_link_libraries(deltafill_runtime
  PUBLIC deltafill_options deltafill_exchange deltafill_identity deltafill_latent_cache deltafill_kernels_interface
    absl::status absl::statusor
  PRIVATE proto_worker absl::strings Threads::Threads)

# Loading a model directory needs the model; the lanes work with any Model.
add_library(deltafill_worker STATIC runtime/memory_plan.cc runtime/served_model.cc)
target_link_libraries(deltafill_worker PUBLIC deltafill_runtime deltafill_model deltafill_kernels)
