#include "worker/exchange/peer_channel.h"

#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>

#include <chrono>

namespace deltafill::worker {

std::shared_ptr<grpc::Channel> ConnectPeer(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

bool WaitConnected(grpc::Channel& channel, const std::function<bool()>& give_up) {
  while (!channel.WaitForConnected(std::chrono::system_clock::now() +
                                   std::chrono::milliseconds(100))) {
    if (give_up()) return false;
  }
  return true;
}

}  // namespace deltafill::worker
