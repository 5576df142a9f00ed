// What another implementation computed on a fixture's model.
#ifndef DELTAFILL_TESTS_WORKER_EXPECTED_TENSORS_H_
#define DELTAFILL_TESTS_WORKER_EXPECTED_TENSORS_H_

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/worker/model_fixture.h"
#include "worker/model/safetensors.h"

namespace deltafill::test {

// The tensors of NAME.expected.safetensors, read with our own reader. Fails the test if one is
// missing.
class ExpectedTensors {
 public:
  explicit ExpectedTensors(const std::string& name)
      : file_(ReadFile(FixturePath(name + ".expected.safetensors"))) {
    auto header = ParseSafetensors(file_, name);
    EXPECT_TRUE(header.ok()) << header.status();
    if (header.ok()) header_ = *header;
  }

  template <typename Value>
  std::vector<Value> Values(const std::string& name) const {
    for (const TensorEntry& entry : header_.tensors) {
      if (entry.name != name) continue;
      std::vector<Value> values((entry.end - entry.begin) / sizeof(Value));
      std::memcpy(values.data(), file_.data() + entry.begin, entry.end - entry.begin);
      return values;
    }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }
  std::vector<double> Doubles(const std::string& name) const {
    const std::vector<float> values = Values<float>(name);
    return {values.begin(), values.end()};
  }

 private:
  std::string file_;
  SafetensorsHeader header_;
};

}  // namespace deltafill::test

#endif  // DELTAFILL_TESTS_WORKER_EXPECTED_TENSORS_H_
