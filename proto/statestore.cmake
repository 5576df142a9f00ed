# The store's protocol, and status codes between absl and gRPC.
deltafill_proto(statestore)

add_library(deltafill_status_rpc STATIC status_conversion.cc)
target_link_libraries(deltafill_status_rpc PUBLIC deltafill_options absl::status PRIVATE gRPC::grpc++)
