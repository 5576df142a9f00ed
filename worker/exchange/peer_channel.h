// The connection to one peer's exchange.
#ifndef DELTAFILL_WORKER_EXCHANGE_PEER_CHANNEL_H_
#define DELTAFILL_WORKER_EXCHANGE_PEER_CHANNEL_H_

#include <functional>
#include <memory>
#include <string>

namespace grpc {
class Channel;
}

namespace deltafill::worker {

// "host:port". Tries again soon after it has lost the peer, and pings: a machine that vanishes says
// nothing.
std::shared_ptr<grpc::Channel> ConnectPeer(const std::string& address);

// Waits until the channel is connected; false as soon as `give_up`, asked every 100 ms, says so.
bool WaitConnected(grpc::Channel& channel, const std::function<bool()>& give_up);

}  // namespace deltafill::worker

#endif  // DELTAFILL_WORKER_EXCHANGE_PEER_CHANNEL_H_
