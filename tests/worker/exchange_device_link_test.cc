// The protocol of device links beside the exchange's streams, over fake cards.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "proto/worker.grpc.pb.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fake_device_link.h"
#include "tests/testing/received_bytes.h"
#include "tests/worker/exchange_fixture.h"
#include "worker/exchange/exchange_link.h"
#include "worker/exchange/exchange_server.h"

namespace deltafill::worker {
namespace {

using std::chrono::milliseconds;
using test::CardSwitch;
using test::Eventually;
using test::Taken;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class Lines {
 public:
  std::function<void(const std::string&)> writer() {
    return [this](const std::string& line) {
      std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
  }
  std::vector<std::string> get() const {
    std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

// A state as a card's memory would hold it.
SharedState OnCard(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  return std::make_shared<ReceivedState>(owner->data(), owner->size(), false, owner);
}

class ExchangeDeviceLinkTest : public testing::Test {
 protected:
  // "" for no transport.
  void Start(const std::string& sender_card = "A", const std::string& receiver_card = "B") {
    mailbox_ = std::make_shared<Mailbox>(OneSmallOneLarge());
    ExchangeServerOptions server_options;
    if (!receiver_card.empty()) server_options.transport = cards_->NewCard(receiver_card);
    server_options.device_open_timeout = open_timeout_;
    server_options.log = receiver_lines_.writer();
    auto server = ExchangeServer::Start("127.0.0.1:0", mailbox_, server_options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ExchangeLinkOptions options;
    options.limits.unreachable_after = unreachable_after_;
    options.limits.unacknowledged_bytes_max = unacknowledged_bytes_max_;
    options.limits.device_open_timeout = open_timeout_;
    options.lost = [this](const AttemptKey&, const absl::Status& status) {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      lost_.store(true);
    };
    if (!sender_card.empty()) options.device.transport = cards_->NewCard(sender_card);
    options.device.copy_to_host = [](const ReceivedState& state) -> absl::StatusOr<SharedState> {
      return std::make_shared<ReceivedState>(
          std::vector<std::byte>(state.data(), state.data() + state.bytes()));
    };
    options.log = sender_lines_.writer();
    link_ = std::make_unique<ExchangeLink>("worker 1",
                                           "127.0.0.1:" + std::to_string(server_->port()), options);
  }

  ~ExchangeDeviceLinkTest() override {
    link_.reset();
    server_.reset();
    EXPECT_EQ(cards_->links_alive(), 0);
  }

  absl::Status Send(uint32_t range, uint32_t layer, AttemptKey attempt = {5, 1}) {
    const size_t bytes = layer == 0 ? 64 : kLargeBytes;
    return link_->Send({attempt, range, layer, PartKind::kRecurrent},
                       OnCard(Pattern(bytes, range + 100 * layer)), [] { return false; });
  }
  // Both layers of ranges [begin, end).
  void SendRanges(uint32_t begin, uint32_t end) {
    for (uint32_t range = begin; range < end; ++range) {
      ASSERT_TRUE(Send(range, 1).ok());
      ASSERT_TRUE(Send(range, 0).ok());
    }
  }
  void ExpectRanges(uint32_t begin, uint32_t end) {
    EXPECT_TRUE(link_->Flush(milliseconds(30'000)));
    for (uint32_t range = begin; range < end; ++range) {
      ASSERT_TRUE(mailbox_->Reserve({5, 1}, range).ok());
      for (uint32_t layer : {0u, 1u}) {
        EXPECT_EQ(Taken(mailbox_->Await({{5, 1}, range, layer, PartKind::kRecurrent})),
                  Pattern(layer == 0 ? 64 : kLargeBytes, range + 100 * layer));
      }
    }
    EXPECT_FALSE(lost_.load());
  }

  const std::shared_ptr<CardSwitch> cards_ = std::make_shared<CardSwitch>();
  milliseconds open_timeout_{30'000};
  milliseconds unreachable_after_{30'000};
  size_t unacknowledged_bytes_max_ = size_t{64} << 20;
  Lines sender_lines_;
  Lines receiver_lines_;
  std::atomic<bool> lost_{false};
  std::shared_ptr<Mailbox> mailbox_;
  std::unique_ptr<ExchangeServer> server_;
  std::unique_ptr<ExchangeLink> link_;
};

TEST_F(ExchangeDeviceLinkTest, StatesComeByDeviceLink) {
  Start();
  SendRanges(0, 6);
  // Bytes of the host keep to the stream, between the others.
  ASSERT_TRUE(link_
                  ->Send({{5, 1}, 6, 0, PartKind::kRecurrent},
                         std::make_shared<ReceivedState>(Pattern(64, 6)), [] { return false; })
                  .ok());
  ASSERT_TRUE(Send(6, 1).ok());
  ExpectRanges(0, 7);
  EXPECT_EQ(cards_->transfers(), 13);
  link_.reset();
  server_.reset();
  EXPECT_THAT(sender_lines_.get(), Contains(HasSubstr("device link open in")));
  EXPECT_THAT(receiver_lines_.get(), Contains(HasSubstr("device link open, fake cards")));
  const std::string bytes = std::to_string(7 * kLargeBytes + 6 * 64);
  EXPECT_THAT(receiver_lines_.get(),
              Contains(testing::AllOf(
                  HasSubstr("by device link: recurrent 13 messages, " + bytes + " bytes"),
                  HasSubstr("in the stream: recurrent 1 messages, 64 bytes"))));
  EXPECT_THAT(sender_lines_.get(), Contains(HasSubstr("recurrent 13 messages, " + bytes)));
}

TEST_F(ExchangeDeviceLinkTest, ACardHasNoLinkWithItself) {
  Start("A", "A");
  SendRanges(0, 2);
  ExpectRanges(0, 2);
  EXPECT_EQ(cards_->links_opened(), 0);
  EXPECT_THAT(sender_lines_.get(), Contains(HasSubstr("no device link, states go through the host: "
                                                      "the receiver: it is on the sender's own")));
}

TEST_F(ExchangeDeviceLinkTest, AReceiverWithoutCards) {
  Start("A", "");
  SendRanges(0, 2);
  ExpectRanges(0, 2);
  EXPECT_THAT(sender_lines_.get(), Contains(HasSubstr("it has no device links")));
}

// What NCCL keeps for an offer stays: one that is refused for good is not made again.
TEST_F(ExchangeDeviceLinkTest, ARefusalIsRemembered) {
  Start("A", "");
  SendRanges(0, 2);
  ExpectRanges(0, 2);
  const std::string address = "127.0.0.1:" + std::to_string(server_->port());
  for (uint32_t round = 1; round <= 3; ++round) {
    server_.reset();  // the stream breaks
    auto server = ExchangeServer::Start(address, mailbox_, {});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    SendRanges(2 * round, 2 * round + 2);
    ExpectRanges(2 * round, 2 * round + 2);
  }
  EXPECT_EQ(cards_->ids_made(), 1);
  EXPECT_FALSE(lost_.load());
}

TEST_F(ExchangeDeviceLinkTest, ASenderWithoutCardsOffersNothing) {
  Start("", "B");
  SendRanges(0, 2);
  ExpectRanges(0, 2);
  EXPECT_EQ(cards_->links_opened(), 0);
  EXPECT_THAT(receiver_lines_.get(), Not(Contains(HasSubstr("no device link"))));
}

TEST_F(ExchangeDeviceLinkTest, OpeningThatHangsOrFailsFallsBackToTheHost) {
  open_timeout_ = milliseconds(150);
  int lines = 0;
  for (const char* card : {"A", "B"}) {
    for (bool hangs : {true, false}) {
      cards_->SetFaults("A", {});
      cards_->SetFaults("B", {});
      cards_->SetFaults(card, {.open_fails = !hangs, .open_hangs = hangs});
      Start();
      SendRanges(0, 2);
      ExpectRanges(0, 2);
      EXPECT_EQ(cards_->transfers(), 0);
      EXPECT_EQ(sender_lines_.get().size(), static_cast<size_t>(++lines));
      EXPECT_THAT(sender_lines_.get().back(), HasSubstr("no device link"));
      link_.reset();
      lines = static_cast<int>(sender_lines_.get().size());
      server_.reset();
    }
  }
}

TEST_F(ExchangeDeviceLinkTest, ALinkThatBreaksIsOpenedAnew) {
  for (const char* card : {"A", "B"}) {
    cards_->SetFaults("A", {});
    cards_->SetFaults("B", {});
    cards_->SetFaults(card, {.transfers_until_failure = 3});
    const int opened = cards_->links_opened();
    Start();
    SendRanges(0, 4);
    ExpectRanges(0, 4);
    EXPECT_EQ(cards_->links_opened(), opened + 4) << "ends: two links";
    link_.reset();
    server_.reset();
    EXPECT_THAT(sender_lines_.get(), Contains(HasSubstr("device link open")));
  }
}

TEST_F(ExchangeDeviceLinkTest, LinksThatAlwaysBreakAreGivenUp) {
  for (const char* card : {"A", "B"}) {
    cards_->SetFaults("A", {});
    cards_->SetFaults("B", {});
    cards_->SetFaults(card, {.transfers_fail = true});
    Start();
    SendRanges(0, 3);
    ExpectRanges(0, 3);
    EXPECT_EQ(cards_->transfers(), 0);
    link_.reset();
    server_.reset();
  }
}

TEST_F(ExchangeDeviceLinkTest, APeerThatIsLostInTheMiddleOfATransfer) {
  unreachable_after_ = milliseconds(300);
  cards_->SetFaults("B", {.receive_hangs = true});
  Start();
  SendRanges(0, 2);
  EXPECT_TRUE(Eventually([&] { return cards_->links_alive() == 2; }));
  server_.reset();  // ends a Receive that hangs
  EXPECT_TRUE(Eventually([&] { return lost_.load(); }));
  EXPECT_TRUE(Eventually([&] { return cards_->links_alive() == 0; }));
  EXPECT_EQ(mailbox_->bytes_held(), 0u);
  const absl::Status status = Send(2, 0);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker 1 cannot be reached"));
}

TEST_F(ExchangeDeviceLinkTest, ASenderThatGoesEndsTheReceiversWait) {
  cards_->SetFaults("B", {.receive_hangs = true});
  Start();
  SendRanges(0, 1);
  EXPECT_TRUE(Eventually([&] { return cards_->links_alive() == 2; }));
  link_.reset();
  EXPECT_TRUE(Eventually([&] { return cards_->links_alive() == 0; }));
}

TEST_F(ExchangeDeviceLinkTest, AReceiveThatGetsNothingInTimeIsTriedAnew) {
  cards_->SetFaults("B", {.receive_hangs = true, .transfer_timeout = milliseconds(50)});
  Start();
  SendRanges(0, 2);
  EXPECT_TRUE(Eventually([&] { return cards_->links_opened() >= 2; }));
  cards_->SetFaults("B", {});
  ExpectRanges(0, 2);
}

TEST_F(ExchangeDeviceLinkTest, LateMessagesOfOldAttemptsAreReceivedAndDropped) {
  Start();
  ASSERT_TRUE(mailbox_->Reserve({5, 2}, 0).ok());
  for (uint32_t attempt : {1u, 2u, 1u}) {
    ASSERT_TRUE(Send(0, 0, {5, attempt}).ok());
    ASSERT_TRUE(Send(0, 1, {5, attempt}).ok());
  }
  EXPECT_TRUE(link_->Flush(milliseconds(30'000)));
  EXPECT_EQ(cards_->transfers(), 6);
  EXPECT_EQ(mailbox_->bytes_held(), kLargeBytes + 64);
  EXPECT_EQ(Taken(mailbox_->Await({{5, 2}, 0, 1, PartKind::kRecurrent})),
            Pattern(kLargeBytes, 100));
}

TEST_F(ExchangeDeviceLinkTest, CancellingCompletesWhatWasPromised) {
  unacknowledged_bytes_max_ = kLargeBytes;
  cards_->SetFaults("B", {.receive_hangs = true});
  Start();
  ASSERT_TRUE(Send(0, 1).ok());
  std::atomic<bool> cancelled{false};
  std::thread canceller([&] {
    EXPECT_TRUE(Eventually([&] { return cards_->links_alive() == 2; }));
    cancelled.store(true);
  });
  // No credit: waits until it is cancelled.
  EXPECT_TRUE(absl::IsCancelled(link_->Send({{5, 1}, 1, 1, PartKind::kRecurrent},
                                            OnCard(Pattern(kLargeBytes, 1)),
                                            [&] { return cancelled.load(); })));
  canceller.join();
  cards_->SetFaults("B", {});
  EXPECT_TRUE(link_->Flush(milliseconds(30'000)));
  EXPECT_EQ(cards_->transfers(), 1);
  EXPECT_EQ(cards_->links_opened(), 2);
}

TEST_F(ExchangeDeviceLinkTest, WrongMessagesAreRefused) {
  Start();
  const auto refused = [&](const std::vector<v1::BoundaryMessage>& messages, const char* field) {
    auto stub = v1::BoundaryExchangeService::NewStub(grpc::CreateChannel(
        "127.0.0.1:" + std::to_string(server_->port()), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    auto stream = stub->Publish(&context);
    for (const v1::BoundaryMessage& message : messages) stream->Write(message);
    stream->WritesDone();
    v1::BoundaryAck ack;
    while (stream->Read(&ack)) {
    }
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_THAT(status.error_message(), HasSubstr(field));
  };
  v1::BoundaryMessage by_device;
  by_device.set_kind(1);
  by_device.set_total_bytes(64);
  by_device.set_by_device_link(true);
  refused({by_device}, "by_device_link: this stream has no device link");
  v1::BoundaryMessage piece = by_device;
  piece.set_by_device_link(false);
  piece.set_bytes(std::string(40, 'x'));
  refused({piece, by_device}, "in the middle of another message's pieces");
  v1::BoundaryMessage offer;
  offer.mutable_device_link()->set_id("short");
  refused({offer}, "device_link.id: has 5 bytes");
  offer.mutable_device_link()->set_id(std::string(128, 'x'));
  offer.mutable_device_link()->set_card("B");
  refused({offer, offer}, "device_link: not the first message");
  refused({piece, offer}, "in the middle of another message's pieces");
}

}  // namespace
}  // namespace deltafill::worker
