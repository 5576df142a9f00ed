# deltafill_exchange: handing boundary states from worker to worker, in process and over gRPC.
add_library(deltafill_exchange STATIC
  exchange/exchange_link.cc
  exchange/exchange_server.cc
  exchange/mailbox.cc
  exchange/mailbox_registry.cc
  exchange/worker_exchange.cc)
target_link_libraries(deltafill_exchange
  PUBLIC deltafill_options deltafill_latent_cache absl::status absl::statusor
  PRIVATE proto_worker absl::strings Threads::Threads)
