#include "worker/exchange/mailbox.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/testing/received_bytes.h"

namespace deltafill::worker {
namespace {

StateLayout TwoLayers() {
  StateLayout layout;
  layout.entries = {{0, PartKind::kRecurrent, PartDType::kF32, {2, 1, 1, 1}, 0, 8},
                    {1, PartKind::kRecurrent, PartDType::kF32, {2, 1, 1, 1}, 64, 8},
                    {0, PartKind::kConvTail, PartDType::kF32, {3, 1, 1, 1}, 128, 12}};
  layout.bytes = 192;
  return layout;
}

std::vector<std::byte> Bytes(size_t count, int value) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

BoundaryAddress At(AttemptKey attempt, uint32_t range, uint32_t layer = 0,
                   PartKind kind = PartKind::kRecurrent) {
  return {attempt, range, layer, kind};
}

TEST(MailboxTest, GivesWhatWasDeliveredInAnyOrder) {
  Mailbox mailbox(TwoLayers());
  const AttemptKey attempt{7, 1};
  ASSERT_TRUE(mailbox.Reserve(attempt, 3).ok());
  ASSERT_TRUE(mailbox.Reserve(attempt, 3).ok());
  ASSERT_TRUE(mailbox.Deliver(At(attempt, 3, 1), Bytes(8, 2)).ok());
  ASSERT_TRUE(mailbox.Deliver(At(attempt, 3, 0, PartKind::kConvTail), Bytes(12, 3)).ok());
  ASSERT_TRUE(mailbox.Deliver(At(attempt, 3, 0), Bytes(8, 1)).ok());
  EXPECT_EQ(test::Taken(mailbox.Await(At(attempt, 3, 0))), Bytes(8, 1));
  EXPECT_EQ(test::Taken(mailbox.Await(At(attempt, 3, 1))), Bytes(8, 2));
  EXPECT_EQ(test::Taken(mailbox.Await(At(attempt, 3, 0, PartKind::kConvTail))), Bytes(12, 3));
  EXPECT_EQ(mailbox.bytes_held(), 0u);
  EXPECT_EQ(mailbox.Await(At(attempt, 3, 0)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(MailboxTest, WaitsForALateMessage) {
  Mailbox mailbox(TwoLayers());
  const AttemptKey attempt{7, 1};
  ASSERT_TRUE(mailbox.Reserve(attempt, 0).ok());
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_TRUE(mailbox.Deliver(At(attempt, 0), Bytes(8, 9)).ok());
  });
  EXPECT_EQ(test::Taken(mailbox.Await(At(attempt, 0))), Bytes(8, 9));
  sender.join();
}

TEST(MailboxTest, KeepsAMessageThatOvertookItsReservation) {
  Mailbox mailbox(TwoLayers());
  const AttemptKey attempt{7, 1};
  ASSERT_TRUE(mailbox.Deliver(At(attempt, 0), Bytes(8, 9)).ok());
  EXPECT_TRUE(absl::IsCancelled(mailbox.Await(At(attempt, 0)).status()));  // not reserved yet
  ASSERT_TRUE(mailbox.Reserve(attempt, 0).ok());
  EXPECT_EQ(test::Taken(mailbox.Await(At(attempt, 0))), Bytes(8, 9));
}

TEST(MailboxTest, AbortWakesWaitersAndDropsOldAttempts) {
  Mailbox mailbox(TwoLayers());
  ASSERT_TRUE(mailbox.Reserve({7, 2}, 0).ok());
  ASSERT_TRUE(mailbox.Reserve({8, 1}, 0).ok());
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    mailbox.Abort({7, 2});
  });
  EXPECT_TRUE(absl::IsCancelled(mailbox.Await(At({7, 2}, 0)).status()));
  aborter.join();
  for (uint32_t attempt : {1u, 2u}) {
    EXPECT_TRUE(mailbox.Deliver(At({7, attempt}, 0), Bytes(8, 1)).ok());
    EXPECT_TRUE(absl::IsCancelled(mailbox.Reserve({7, attempt}, 0)));
  }
  EXPECT_EQ(mailbox.bytes_held(), 0u);
  // Other prompts, and later attempts of this one, go on.
  EXPECT_TRUE(mailbox.Deliver(At({8, 1}, 0), Bytes(8, 5)).ok());
  EXPECT_EQ(test::Taken(mailbox.Await(At({8, 1}, 0))), Bytes(8, 5));
  EXPECT_TRUE(mailbox.Reserve({7, 3}, 0).ok());
  mailbox.Abort({7, 2});  // late: the third attempt is not its business
  EXPECT_TRUE(mailbox.Deliver(At({7, 3}, 0), Bytes(8, 6)).ok());
  EXPECT_EQ(test::Taken(mailbox.Await(At({7, 3}, 0))), Bytes(8, 6));
}

TEST(MailboxTest, ANewerAttemptEndsTheOlder) {
  Mailbox mailbox(TwoLayers());
  ASSERT_TRUE(mailbox.Reserve({7, 1}, 0).ok());
  ASSERT_TRUE(mailbox.Deliver(At({7, 1}, 0), Bytes(8, 1)).ok());
  ASSERT_TRUE(mailbox.Deliver(At({7, 2}, 0), Bytes(8, 2)).ok());
  EXPECT_TRUE(absl::IsCancelled(mailbox.Await(At({7, 1}, 0)).status()));
  ASSERT_TRUE(mailbox.Reserve({7, 2}, 0).ok());
  EXPECT_EQ(test::Taken(mailbox.Await(At({7, 2}, 0))), Bytes(8, 2));
}

TEST(MailboxTest, DropsRepetitions) {
  Mailbox mailbox(TwoLayers());
  const AttemptKey attempt{7, 1};
  ASSERT_TRUE(mailbox.Reserve(attempt, 0).ok());
  ASSERT_TRUE(mailbox.Deliver(At(attempt, 0), Bytes(8, 1)).ok());
  ASSERT_TRUE(mailbox.Deliver(At(attempt, 0), Bytes(8, 2)).ok());
  EXPECT_EQ(test::Taken(mailbox.Await(At(attempt, 0))), Bytes(8, 1));
  ASSERT_TRUE(mailbox.Deliver(At(attempt, 0), Bytes(8, 1)).ok());  // taken already
  mailbox.Release(attempt, 0);
  ASSERT_TRUE(mailbox.Deliver(At(attempt, 0), Bytes(8, 1)).ok());  // released already
  EXPECT_EQ(mailbox.bytes_held(), 0u);
}

TEST(MailboxTest, RefusesWhatTheModelHasNot) {
  Mailbox mailbox(TwoLayers());
  EXPECT_TRUE(absl::IsInvalidArgument(mailbox.Deliver(At({1, 1}, 0), Bytes(7, 0))));
  EXPECT_TRUE(absl::IsInvalidArgument(mailbox.Deliver(At({1, 1}, 0, 2), Bytes(8, 0))));
  EXPECT_TRUE(
      absl::IsInvalidArgument(mailbox.Deliver(At({1, 1}, 0, 0, PartKind::kLatent), Bytes(8, 0))));
}

TEST(MailboxTest, EarlyMessagesAreBounded) {
  MailboxLimits limits;
  limits.unreserved_bytes_max = 24;
  Mailbox mailbox(TwoLayers(), limits);
  ASSERT_TRUE(mailbox.Reserve({1, 1}, 0).ok());
  ASSERT_TRUE(mailbox.Deliver(At({1, 1}, 0), Bytes(8, 1)).ok());  // reserved: does not count
  for (uint64_t prompt = 2; prompt <= 4; ++prompt) {
    ASSERT_TRUE(mailbox.Deliver(At({prompt, 1}, 0), Bytes(8, 1)).ok());
  }
  EXPECT_EQ(mailbox.bytes_held(), 32u);
  ASSERT_TRUE(mailbox.Deliver(At({5, 1}, 0), Bytes(8, 1)).ok());
  EXPECT_EQ(mailbox.bytes_held(), 32u);
  EXPECT_TRUE(absl::IsResourceExhausted(mailbox.Reserve({2, 1}, 0)));
  EXPECT_TRUE(mailbox.Reserve({2, 2}, 0).ok());
  EXPECT_TRUE(mailbox.Reserve({3, 1}, 0).ok());
  EXPECT_EQ(test::Taken(mailbox.Await(At({1, 1}, 0))), Bytes(8, 1));
}

TEST(MailboxTest, RemembersABoundedNumberOfPrompts) {
  MailboxLimits limits;
  limits.prompts_max = 10;
  Mailbox mailbox(TwoLayers(), limits);
  ASSERT_TRUE(mailbox.Reserve({0, 1}, 0).ok());  // has a box: is not forgotten
  for (uint64_t prompt = 1; prompt <= 100; ++prompt) mailbox.Abort({prompt, 5});
  EXPECT_EQ(mailbox.prompts_remembered(), 10u);
  EXPECT_TRUE(absl::IsCancelled(mailbox.Reserve({100, 5}, 0)));
  ASSERT_TRUE(mailbox.Deliver(At({0, 1}, 0), Bytes(8, 4)).ok());
  EXPECT_EQ(test::Taken(mailbox.Await(At({0, 1}, 0))), Bytes(8, 4));
}

TEST(MailboxTest, AbortAllForgetsEverything) {
  Mailbox mailbox(TwoLayers());
  mailbox.Abort({1, 9});
  ASSERT_TRUE(mailbox.Reserve({2, 1}, 0).ok());
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    mailbox.AbortAll();
  });
  EXPECT_TRUE(absl::IsCancelled(mailbox.Await(At({2, 1}, 0)).status()));
  aborter.join();
  EXPECT_TRUE(mailbox.Reserve({1, 1}, 0).ok());
}

TEST(MailboxTest, LatentsHaveAnyNumberOfRows) {
  StateLayout layout = TwoLayers();
  layout.latents = {{2, 5}, 3, PartDType::kBF16};  // rows of 6 bytes
  MailboxLimits limits;
  limits.latent_bytes_max = 60;
  limits.unreserved_bytes_max = 100;
  Mailbox mailbox(layout, limits);
  const AttemptKey attempt{7, 1};
  const auto at = [&](uint32_t layer) { return At(attempt, 0, layer, PartKind::kLatent); };
  ASSERT_TRUE(mailbox.Reserve(attempt, 0).ok());
  ASSERT_TRUE(mailbox.Deliver(at(5), Bytes(60, 5)).ok());
  ASSERT_TRUE(mailbox.Deliver(at(2), Bytes(6, 2)).ok());
  EXPECT_EQ(mailbox.bytes_held(), 66u);
  EXPECT_EQ(test::Taken(mailbox.Await(at(2))), Bytes(6, 2));
  EXPECT_EQ(test::Taken(mailbox.Await(at(5))), Bytes(60, 5));
  EXPECT_EQ(mailbox.bytes_held(), 0u);
  for (size_t bytes : {size_t{0}, size_t{7}, size_t{66}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(mailbox.Deliver(at(2), Bytes(bytes, 1)))) << bytes;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(mailbox.Deliver(at(0), Bytes(6, 1))));
  // Early ones are counted by their bytes.
  for (uint32_t layer : {2u, 5u}) {
    ASSERT_TRUE(mailbox.Deliver(At({8, 1}, 4, layer, PartKind::kLatent), Bytes(54, 1)).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(mailbox.Reserve({8, 1}, 4)));
}

}  // namespace
}  // namespace deltafill::worker
