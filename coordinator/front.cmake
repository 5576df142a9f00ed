# deltafill_front: the API's services on the client port.
add_library(deltafill_front STATIC
  front/call_runner.cc
  front/checkpoint_request.cc
  front/decode.cc
  front/decode_run.cc
  front/delete_state.cc
  front/describe.cc
  front/fetch_state.cc
  front/front_server.cc
  front/get_state.cc
  front/handle.cc
  front/keyed_prompt.cc
  front/layout.cc
  front/list_states.cc
  front/log.cc
  front/lookup.cc
  front/lower_hex.cc
  front/model_choice.cc
  front/part_leases.cc
  front/pin_state.cc
  front/prefill.cc
  front/prefill_messages.cc
  front/prefill_run.cc
  front/prefix_lookup.cc
  front/progress_rate.cc
  front/prompt_intake.cc
  front/prompt_session.cc
  front/publish.cc
  front/request_check.cc
  front/server_description.cc
  front/server_tls.cc
  front/service.cc
  front/state_access.cc
  front/state_latents.cc
  front/state_tensors.cc
  front/tenant_resolver.cc
  front/tenant_salts.cc
  front/tokenizer_shelf.cc
  snapshots/checkpoint_plan.cc
  snapshots/put_snapshot.cc
  snapshots/snapshot_queries.cc
  snapshots/snapshot_service.cc
  snapshots/snapshot_upload.cc
  snapshots/stored_snapshot.cc)
target_compile_definitions(deltafill_front PRIVATE DELTAFILL_VERSION="${PROJECT_VERSION}")
target_include_directories(deltafill_front PRIVATE ${XXHASH_INCLUDE_DIR})
target_link_libraries(deltafill_front
  PUBLIC deltafill_statestore deltafill_latent_parts absl::status absl::statusor
  PRIVATE deltafill_options deltafill_status_rpc deltafill_tokenizer proto_prefill proto_snapshot
    gRPC::grpc++ gRPC::grpc++_reflection spdlog::spdlog OpenSSL::Crypto ${XXHASH_LIBRARY} absl::strings)
