// What came in through an exchange, as tests compare it.
#ifndef DELTAFILL_TESTS_TESTING_RECEIVED_BYTES_H_
#define DELTAFILL_TESTS_TESTING_RECEIVED_BYTES_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "worker/exchange/boundary_exchange.h"

namespace deltafill::test {

// Fails the test and returns nothing on an error, or if the bytes are not on the host.
inline std::vector<std::byte> Taken(const absl::StatusOr<worker::ReceivedState>& received) {
  EXPECT_TRUE(received.ok()) << received.status();
  if (!received.ok()) return {};
  EXPECT_TRUE(received->on_host());
  if (!received->on_host()) return {};
  return {received->data(), received->data() + received->bytes()};
}

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_TESTING_RECEIVED_BYTES_H_
