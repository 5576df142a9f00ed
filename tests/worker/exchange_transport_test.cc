#include <grpcpp/create_channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "proto/worker.grpc.pb.h"
#include "tests/testing/eventually.h"
#include "tests/testing/received_bytes.h"
#include "tests/worker/exchange_fixture.h"
#include "worker/exchange/exchange_server.h"
#include "worker/exchange/worker_exchange.h"

namespace deltafill::worker {
namespace {

using std::chrono::milliseconds;
ExchangeLinkLimits Quick() {
  ExchangeLinkLimits limits;
  limits.unreachable_after = milliseconds(400);
  return limits;
}

struct Peer {
  explicit Peer(uint32_t number, const std::string& listen = "127.0.0.1:0")
      : mailbox(std::make_shared<Mailbox>(OneSmallOneLarge())) {
    auto started = ExchangeServer::Start(listen, mailbox);
    EXPECT_TRUE(started.ok()) << started.status();
    if (!started.ok()) return;
    server = *std::move(started);
    target = {number, "127.0.0.1:" + std::to_string(server->port())};
  }
  std::shared_ptr<Mailbox> mailbox;
  std::unique_ptr<ExchangeServer> server;
  ExchangeTarget target;
};

struct Sender {
  explicit Sender(const ExchangeLinkLimits& limits = Quick(),
                  std::shared_ptr<MailboxRegistry> registry = nullptr)
      : mailbox(std::make_shared<Mailbox>(OneSmallOneLarge())),
        exchange(mailbox, std::move(registry), limits,
                 [this](const AttemptKey& attempt, const absl::Status& status) {
                   lost_attempt = attempt.attempt;
                   EXPECT_TRUE(absl::IsUnavailable(status)) << status;
                   lost.store(true);
                 }) {}
  std::shared_ptr<Mailbox> mailbox;
  std::atomic<bool> lost{false};
  std::atomic<uint32_t> lost_attempt{0};
  WorkerExchange exchange;
};

TEST(ExchangeTransportTest, InProcessReachesSelfAndOthers) {
  auto registry = std::make_shared<MailboxRegistry>();
  Sender one(Quick(), registry), two(Quick(), registry);
  one.exchange.SetWorker(1);
  two.exchange.SetWorker(2);
  const AttemptKey attempt{5, 1};
  const ExchangeTarget targets[] = {{1, ""}, {2, ""}};
  const auto bytes = Pattern(64, 1);
  ASSERT_TRUE(one.exchange.Reserve(attempt, 1).ok());
  ASSERT_TRUE(two.exchange.Reserve(attempt, 1).ok());
  ASSERT_TRUE(
      one.exchange.Publish({attempt, 1, 0, PartKind::kRecurrent}, OnHost(bytes), targets).ok());
  EXPECT_EQ(test::Taken(one.exchange.Await({attempt, 1, 0, PartKind::kRecurrent})), bytes);
  EXPECT_EQ(test::Taken(two.exchange.Await({attempt, 1, 0, PartKind::kRecurrent})), bytes);

  const ExchangeTarget nobody{9, ""};
  const absl::Status status =
      one.exchange.Publish({attempt, 2, 0, PartKind::kRecurrent}, OnHost(bytes), {&nobody, 1});
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_NE(status.message().find("worker 9"), std::string::npos) << status;
}

TEST(ExchangeTransportTest, LargeMessagesArriveWholeAtTwoTargets) {
  Peer one(1), two(2);
  Sender sender;
  const ExchangeTarget targets[] = {one.target, two.target};
  const AttemptKey attempt{5, 1};
  for (uint32_t range = 0; range < 8; ++range) {
    const auto small = Pattern(64, range);
    const auto large = Pattern(kLargeBytes, range + 100);
    ASSERT_TRUE(
        sender.exchange.Publish({attempt, range, 1, PartKind::kRecurrent}, OnHost(large), targets)
            .ok());
    ASSERT_TRUE(
        sender.exchange.Publish({attempt, range, 0, PartKind::kRecurrent}, OnHost(small), targets)
            .ok());
  }
  for (Peer* peer : {&one, &two}) {
    for (uint32_t range = 0; range < 8; ++range) {
      ASSERT_TRUE(peer->mailbox->Reserve(attempt, range).ok());
      EXPECT_EQ(test::Taken(peer->mailbox->Await({attempt, range, 0, PartKind::kRecurrent})),
                Pattern(64, range));
      EXPECT_EQ(test::Taken(peer->mailbox->Await({attempt, range, 1, PartKind::kRecurrent})),
                Pattern(kLargeBytes, range + 100));
    }
  }
  EXPECT_TRUE(sender.exchange.Flush(milliseconds(5000)));
  EXPECT_FALSE(sender.lost.load());
}

TEST(ExchangeTransportTest, CreditsBoundWhatIsUnderWay) {
  Peer peer(1);
  ExchangeLinkLimits limits = Quick();
  limits.unacknowledged_bytes_max = kLargeBytes;  // one at a time, a small one waits
  Sender sender(limits);
  const AttemptKey attempt{5, 1};
  ASSERT_TRUE(peer.mailbox->Reserve(attempt, 0).ok());
  for (uint32_t range = 0; range < 6; ++range) {
    ASSERT_TRUE(peer.mailbox->Reserve(attempt, range).ok());
    ASSERT_TRUE(sender.exchange
                    .Publish({attempt, range, 1, PartKind::kRecurrent},
                             OnHost(Pattern(kLargeBytes, range)), {&peer.target, 1})
                    .ok());
    ASSERT_TRUE(sender.exchange
                    .Publish({attempt, range, 0, PartKind::kRecurrent}, OnHost(Pattern(64, range)),
                             {&peer.target, 1})
                    .ok());
  }
  EXPECT_TRUE(sender.exchange.Flush(milliseconds(5000)));
  EXPECT_EQ(peer.mailbox->bytes_held(), 6 * (kLargeBytes + 64));
}

TEST(ExchangeTransportTest, UnreachablePeerIsNamed) {
  Sender sender;
  const ExchangeTarget nobody{4, "127.0.0.1:1"};
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = sender.exchange.Publish({{5, 1}, 0, 0, PartKind::kRecurrent},
                                                        OnHost(Pattern(64, 0)), {&nobody, 1});
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_NE(status.message().find("worker 4"), std::string::npos) << status;
  }
}

// Its connection stands and its pings are answered, but nothing is read.
class StuckService final : public v1::BoundaryExchangeService::Service {
 public:
  grpc::Status Publish(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::BoundaryAck, v1::BoundaryMessage>* /*stream*/) override {
    ++streams;
    while (!context->IsCancelled()) std::this_thread::sleep_for(milliseconds(5));
    return grpc::Status::CANCELLED;
  }
  std::atomic<int> streams{0};
};

TEST(ExchangeTransportTest, APeerThatAnswersButTakesNothingIsLost) {
  StuckService service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ExchangeLinkLimits limits = Quick();
  limits.unreachable_after = milliseconds(60'000);
  limits.stuck_after = milliseconds(200);
  limits.unacknowledged_bytes_max = kLargeBytes;
  Sender sender(limits);
  const ExchangeTarget target{1, "127.0.0.1:" + std::to_string(port)};
  const AttemptKey attempt{5, 3};
  const auto large = Pattern(kLargeBytes, 1);
  ASSERT_TRUE(
      sender.exchange.Publish({attempt, 0, 1, PartKind::kRecurrent}, OnHost(large), {&target, 1})
          .ok());
  // Waits for room until the peer is lost.
  const absl::Status status =
      sender.exchange.Publish({attempt, 1, 1, PartKind::kRecurrent}, OnHost(large), {&target, 1});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("stuck"), std::string::npos) << status;
  EXPECT_TRUE(test::Eventually([&] { return sender.lost.load(); }));
  EXPECT_EQ(sender.lost_attempt.load(), 3u);
  EXPECT_EQ(service.streams.load(), 1) << "tried again";
  server->Shutdown(std::chrono::system_clock::now());
}

TEST(ExchangeTransportTest, AbortEndsASendThatWaits) {
  ExchangeLinkLimits limits;
  limits.unreachable_after = std::chrono::seconds(60);
  Sender sender(limits);
  const ExchangeTarget nobody{4, "127.0.0.1:1"};
  for (bool all : {false, true}) {
    std::thread aborter([&] {
      std::this_thread::sleep_for(milliseconds(50));
      all ? sender.exchange.AbortAll() : sender.exchange.Abort({5, 1});
    });
    const AttemptKey attempt{all ? 6u : 5u, 1};
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(absl::IsCancelled(sender.exchange.Publish({attempt, 0, 0, PartKind::kRecurrent},
                                                          OnHost(Pattern(64, 0)), {&nobody, 1})));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    aborter.join();
  }
}

TEST(ExchangeTransportTest, ReconnectsAfterARestart) {
  auto peer = std::make_unique<Peer>(1);
  const ExchangeTarget target = peer->target;
  ExchangeLinkLimits limits;
  limits.unreachable_after = milliseconds(5000);
  Sender sender(limits);
  ASSERT_TRUE(
      sender.exchange
          .Publish({{5, 1}, 0, 0, PartKind::kRecurrent}, OnHost(Pattern(64, 1)), {&target, 1})
          .ok());
  ASSERT_TRUE(sender.exchange.Flush(milliseconds(5000)));
  peer.reset();
  std::this_thread::sleep_for(milliseconds(50));
  std::thread restart([&] {
    std::this_thread::sleep_for(milliseconds(200));
    peer = std::make_unique<Peer>(1, target.address);
  });
  EXPECT_TRUE(
      sender.exchange
          .Publish({{5, 1}, 1, 0, PartKind::kRecurrent}, OnHost(Pattern(64, 2)), {&target, 1})
          .ok());
  restart.join();
  EXPECT_TRUE(sender.exchange.Flush(milliseconds(8000)));
  ASSERT_TRUE(peer->mailbox->Reserve({5, 1}, 1).ok());
  EXPECT_EQ(test::Taken(peer->mailbox->Await({{5, 1}, 1, 0, PartKind::kRecurrent})),
            Pattern(64, 2));
  EXPECT_FALSE(sender.lost.load());
}

TEST(ExchangeTransportTest, MessagesLostWithAPeerAreReported) {
  // A peer that accepts the stream and is gone before it acknowledges.
  struct Silent final : v1::BoundaryExchangeService::Service {
    grpc::Status Publish(
        grpc::ServerContext*,
        grpc::ServerReaderWriter<v1::BoundaryAck, v1::BoundaryMessage>* stream) override {
      v1::BoundaryMessage piece;
      stream->Read(&piece);
      return {grpc::StatusCode::UNAVAILABLE, "going away"};
    }
  } silent;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&silent);
  auto server = builder.BuildAndStart();
  Sender sender;
  const ExchangeTarget target{1, "127.0.0.1:" + std::to_string(port)};
  sender.exchange
      .Publish({{5, 3}, 0, 0, PartKind::kRecurrent}, OnHost(Pattern(64, 1)), {&target, 1})
      .IgnoreError();
  for (int i = 0; i < 200 && !sender.lost.load(); ++i)
    std::this_thread::sleep_for(milliseconds(20));
  EXPECT_TRUE(sender.lost.load());
  EXPECT_EQ(sender.lost_attempt.load(), 3u);
  server->Shutdown(std::chrono::system_clock::now());
}

class ExchangeServiceTest : public testing::Test {
 protected:
  // The status that a stream of these pieces ends with.
  grpc::Status Send(const std::vector<v1::BoundaryMessage>& pieces) {
    Peer peer(1);
    auto stub = v1::BoundaryExchangeService::NewStub(
        grpc::CreateChannel(peer.target.address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    auto stream = stub->Publish(&context);
    for (const v1::BoundaryMessage& piece : pieces) stream->Write(piece);
    stream->WritesDone();
    v1::BoundaryAck ack;
    acks_ = 0;
    while (stream->Read(&ack)) ++acks_;
    return stream->Finish();
  }
  static v1::BoundaryMessage Piece(uint64_t total, uint64_t offset, size_t count) {
    v1::BoundaryMessage piece;
    piece.mutable_attempt()->set_prompt(1);
    piece.mutable_attempt()->set_attempt(1);
    piece.set_kind(1);
    piece.set_total_bytes(total);
    piece.set_offset(offset);
    piece.set_bytes(std::string(count, 'x'));
    return piece;
  }
  int acks_ = 0;
};

TEST_F(ExchangeServiceTest, PiecesAreChecked) {
  EXPECT_TRUE(Send({Piece(64, 0, 40), Piece(64, 40, 24)}).ok());
  EXPECT_EQ(acks_, 1);
  const auto refused = [this](std::vector<v1::BoundaryMessage> pieces, const char* field) {
    const grpc::Status status = Send(pieces);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_NE(status.error_message().find(field), std::string::npos) << status.error_message();
    EXPECT_EQ(acks_, 0);
  };
  refused({Piece(68, 0, 68)}, "total_bytes");
  refused({Piece(64, 0, 40), Piece(64, 44, 20)}, "offset");
  refused({Piece(64, 0, 40), Piece(64, 40, 25)}, "offset");
  refused({Piece(64, 8, 8)}, "offset");
  refused({Piece(64, 0, 0)}, "bytes");
  v1::BoundaryMessage other = Piece(64, 40, 24);
  other.set_range(1);
  refused({Piece(64, 0, 40), other}, "another message");
  v1::BoundaryMessage unknown = Piece(64, 0, 64);
  unknown.set_kind(900);
  refused({unknown}, "kind");
  unknown.set_kind(2);
  refused({unknown}, "no such piece");
}

}  // namespace
}  // namespace deltafill::worker
