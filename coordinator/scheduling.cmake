# deltafill_latent_parts: which parts of a state are shared; for scheduler and front.
add_library(deltafill_latent_parts STATIC latent_parts.cc)
target_link_libraries(deltafill_latent_parts
  PUBLIC deltafill_identity PRIVATE deltafill_options absl::strings)

# deltafill_planning: planner and scheduler, pure: no gRPC, no threads.
add_library(deltafill_planning STATIC
  planner/grid.cc
  planner/plan.cc
  scheduler/attempt.cc
  scheduler/boundary_reports.cc
  scheduler/dispatch.cc
  scheduler/latents.cc
  scheduler/range_reports.cc
  scheduler/single_work.cc
  scheduler/submission.cc
  scheduler/tick.cc
  scheduler/worker_changes.cc)
target_link_libraries(deltafill_planning PUBLIC
  deltafill_options deltafill_latent_parts absl::status absl::statusor
  PRIVATE absl::strings absl::str_format)

# deltafill_scheduling: the engine thread and the WorkerService around it.
add_library(deltafill_scheduling STATIC
  workers/attach_stream.cc
  workers/engine_thread.cc
  workers/lease_thread.cc
  workers/registry.cc
  workers/scheduling_service.cc
  workers/worker_hub.cc
  workers/worker_messages.cc)
target_link_libraries(deltafill_scheduling
  PUBLIC deltafill_planning
  PRIVATE proto_worker deltafill_status_rpc absl::strings Threads::Threads)
