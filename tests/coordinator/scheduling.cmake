deltafill_test(coordinator_planner_test
  SOURCES planner_test.cc
  LIBS deltafill_planning
  LABELS core)
deltafill_test(coordinator_scheduler_test
  SOURCES scheduler_test.cc scheduler_decode_test.cc scheduler_latents_test.cc scheduler_progress_test.cc simulated_cluster.cc
    simulated_latents.cc simulated_worker.cc
  LIBS deltafill_planning deltafill_testing absl::strings
  LABELS core)
deltafill_test(coordinator_scheduler_simulation_test
  SOURCES scheduler_simulation_test.cc simulated_cluster.cc simulated_latents.cc simulated_worker.cc
  LIBS deltafill_planning deltafill_testing absl::strings
  LABELS core)
deltafill_test(coordinator_registry_test
  SOURCES registry_test.cc
  LIBS deltafill_scheduling absl::strings
  LABELS core)
deltafill_test(coordinator_scheduling_service_test
  SOURCES scheduling_service_test.cc attached_worker.cc
  LIBS deltafill_scheduling proto_worker deltafill_testing Threads::Threads
  LABELS core concurrency)
