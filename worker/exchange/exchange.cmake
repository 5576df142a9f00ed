# deltafill_exchange: handing boundary states from worker to worker, in process, over gRPC, and over
# device links beside it.
add_library(deltafill_exchange STATIC
  exchange/device_path.cc
  exchange/exchange_link.cc
  exchange/exchange_server.cc
  exchange/link_traffic.cc
  exchange/mailbox.cc
  exchange/mailbox_registry.cc
  exchange/peer_channel.cc
  exchange/wire_messages.cc
  exchange/worker_exchange.cc)
target_link_libraries(deltafill_exchange
  PUBLIC deltafill_options deltafill_latent_cache absl::status absl::statusor
  PRIVATE proto_worker absl::strings absl::str_format Threads::Threads)
