// The CUDA backend's life: memory, lanes and weights come and go, errors name what is wrong.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "tests/gpu/backend_fixture.h"

namespace deltafill::test {
namespace {

using kernels::DType;
using kernels::StatusCode;
using testing::HasSubstr;

class BackendTest : public CudaBackendTest {
 protected:
  kernels::MemoryReport Memory() {
    kernels::MemoryReport report;
    Must(backend_->ReadMemory(&report));
    EXPECT_GT(report.total_bytes, report.free_bytes);
    return report;
  }

  // Weights, buffers and lanes in use at once, then gone.
  void UseAndDrop() {
    Random random(1);
    std::vector<std::unique_ptr<kernels::Operators>> lanes(3);
    for (auto& lane : lanes) Must(backend_->NewOperators(1, &lane));
    const auto weight = NewWeight(Bf16Normal(&random, 512 * 256), 512, 256);
    const BackendBuffer x = UploadBf16(Bf16Normal(&random, 300 * 256));
    std::vector<BackendBuffer> outputs;
    for (auto& lane : lanes) {
      outputs.emplace_back(backend_, 300 * 512 * 2);
      Must(lane->MatMul({.x = {x.as<void>(), DType::kBF16, 256},
                         .weight = weight.get(),
                         .y = {outputs.back().as<void>(), DType::kBF16, 512},
                         .rows = 300}));
    }
    for (auto& lane : lanes) Must(lane->Synchronize());
    EXPECT_EQ(Read<uint16_t>(outputs[0]), Read<uint16_t>(outputs[2]));
    void* host = nullptr;
    Must(backend_->AllocateHost(8 << 20, &host));
    backend_->FreeHost(host);
  }
};

TEST_F(BackendTest, MemoryGoesBackToItsBaseline) {
  UseAndDrop();  // loads what CUDA and the library load once
  const kernels::MemoryReport before = Memory();
  for (int round = 0; round < 5; ++round) UseAndDrop();
  const kernels::MemoryReport after = Memory();
  EXPECT_EQ(after.held_bytes, before.held_bytes);
  // A lane alone has 16 MiB; the driver may keep a piece of its own.
  EXPECT_GE(after.free_bytes + (size_t{8} << 20), before.free_bytes);
}

TEST_F(BackendTest, WhatIsReservedIsUsedAgain) {
  constexpr size_t kReserved = size_t{1} << 30;
  Must(backend_->ReserveMemory(kReserved));
  const kernels::MemoryReport before = Memory();
  EXPECT_GE(before.held_bytes, kReserved);
  Must(backend_->ReserveMemory(kReserved / 2));
  // Small ones, large ones, all at once and in another order; and once all of it.
  Random random(2);
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> pieces;
    size_t bytes = 0;
    for (;;) {
      const size_t size = size_t{1} << random.Integer(8, 25);
      if (bytes + size > kReserved / 2) break;
      bytes += size;
      pieces.push_back(nullptr);
      Must(backend_->Allocate(size, &pieces.back()));
    }
    UseAndDrop();
    for (size_t i = 0; i < pieces.size(); i += 2) backend_->Free(pieces[i]);
    for (size_t i = 1; i < pieces.size(); i += 2) backend_->Free(pieces[i]);
    EXPECT_EQ(Memory().held_bytes, before.held_bytes);
  }
  void* all = nullptr;
  Must(backend_->Allocate(kReserved, &all));
  backend_->Free(all);
  EXPECT_EQ(Memory().held_bytes, before.held_bytes);
  const kernels::Status refused = backend_->ReserveMemory(size_t{1} << 50);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("1125899906842624 bytes"));
  Must(backend_->CheckDevice());
}

TEST_F(BackendTest, AllocationsThatDoNotFitAreRefusedWithTheirSize) {
  void* memory = nullptr;
  const kernels::Status status = backend_->Allocate(size_t{1} << 50, &memory);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("1125899906842624 bytes"));
  const BackendBuffer small(backend_, 1000);  // and the backend still works
  Must(lane_->FillZero(small.as<void>(), 1000));
  EXPECT_EQ(Read<uint8_t>(small), std::vector<uint8_t>(1000, 0));
}

TEST_F(BackendTest, BuffersAreAlignedAndMayBeEmpty) {
  for (size_t bytes : {0, 1, 63, 4096}) {
    const BackendBuffer buffer(backend_, bytes);
    EXPECT_NE(buffer.as<void>(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.as<void>()) % 64, 0u);
    void* host = nullptr;
    Must(backend_->AllocateHost(bytes, &host));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(host) % 64, 0u);
    backend_->FreeHost(host);
  }
}

// Workers of one process hand states from card to card; either one's lane may copy.
TEST_F(BackendTest, CopiesBetweenCards) {
  std::unique_ptr<kernels::Backend> second;
  const kernels::Status opened =
      kernels::NewCudaBackend({.compute_dtype = DType::kBF16, .device = 1}, &second);
  if (!opened.ok()) GTEST_SKIP() << "one card: " << opened.message();
  std::unique_ptr<kernels::Operators> second_lane;
  Must(second->NewOperators(1, &second_lane));
  constexpr size_t kBytes = size_t{8} << 20;
  std::vector<uint8_t> bytes(kBytes), back(kBytes);
  for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<uint8_t>(i * 131 + i / 4096);
  const BackendBuffer here(backend_, kBytes), returned(backend_, kBytes);
  const BackendBuffer there(second.get(), kBytes);
  Must(lane_->CopyFromHost(here.as<void>(), bytes.data(), kBytes));
  Must(lane_->Synchronize());
  for (kernels::Operators* lane : {lane_.get(), second_lane.get()}) {
    Must(second_lane->FillZero(there.as<void>(), kBytes));
    Must(second_lane->Synchronize());
    Must(lane->Copy(there.as<void>(), here.as<void>(), kBytes));
    Must(lane->Copy(returned.as<void>(), there.as<void>(), kBytes));
    Must(lane->Synchronize());
    Must(lane_->CopyToHost(back.data(), returned.as<void>(), kBytes));
    Must(lane_->Synchronize());
    EXPECT_TRUE(back == bytes);
  }
}

TEST_F(BackendTest, PinnedCopiesAreOrderedWithTheLane) {
  constexpr size_t kBytes = 32 << 20;
  void* host = nullptr;
  Must(backend_->AllocateHost(2 * kBytes, &host));
  auto* const from = static_cast<uint8_t*>(host);
  for (size_t i = 0; i < kBytes; ++i) from[i] = static_cast<uint8_t>(i * 131 >> 3);
  const BackendBuffer memory(backend_, kBytes);
  Must(lane_->CopyFromHost(memory.as<void>(), from, kBytes));
  Must(lane_->FillZero(memory.as<uint8_t>() + 5, 7));
  Must(lane_->CopyToHost(from + kBytes, memory.as<void>(), kBytes));
  Must(lane_->Synchronize());
  for (size_t i = 0; i < kBytes; ++i) {
    const uint8_t expected = i >= 5 && i < 12 ? 0 : from[i];
    ASSERT_EQ(from[kBytes + i], expected) << i;
  }
  backend_->FreeHost(host);
}

TEST_F(BackendTest, MarkedPointsAreReachedAfterWhatWasIssuedBefore) {
  constexpr size_t kBytes = 64 << 20;
  void* host = nullptr;
  Must(backend_->AllocateHost(kBytes, &host));
  auto* const back = static_cast<uint8_t*>(host);
  const BackendBuffer first(backend_, kBytes), second(backend_, kBytes);
  std::unique_ptr<kernels::LanePoint> point;
  for (uint8_t round = 0; round < 3; ++round) {
    std::memset(back, 0xEE, kBytes);
    Must(lane_->FillZero(first.as<void>(), kBytes));
    Must(lane_->Copy(second.as<void>(), first.as<void>(), kBytes));
    Must(lane_->CopyToHost(back, second.as<void>(), kBytes));
    Must(lane_->Mark(&point));
    Must(point->Wait());
    EXPECT_EQ(std::count(back, back + kBytes, 0), static_cast<std::ptrdiff_t>(kBytes));
  }
  EXPECT_EQ(lane_->Copy(nullptr, first.as<void>(), 1).code(), StatusCode::kInvalidArgument);
  backend_->FreeHost(host);
}

TEST_F(BackendTest, NumericsNameTheSameWeightsTheSame) {
  EXPECT_EQ(backend_->activation_dtype(), DType::kBF16);
  Random random(2);
  std::string names[2];
  for (std::string& name : names) {
    std::unique_ptr<kernels::Backend> other;
    Must(kernels::NewCudaBackend({.compute_dtype = DType::kBF16}, &other));
    std::unique_ptr<kernels::Weight> weight;
    const std::vector<float> values = Bf16Normal(&random, 256 * 128);
    const std::string empty = other->numerics();
    Must(other->NewWeight(values.data(), DType::kF32, 256, 128, &weight));
    name = other->numerics();
    EXPECT_NE(name, empty);
    EXPECT_THAT(name, HasSubstr("/block64/v"));
  }
  EXPECT_EQ(names[0], names[1]);
}

TEST_F(BackendTest, WeightsFromEveryDTypeAndSeveralThreads) {
  Random random(3);
  const int64_t out = 300, in = 40000;  // several pieces
  const std::vector<float> values = Bf16Normal(&random, out * in, 0.25);
  const std::vector<uint16_t> bits = ToBf16Bits(values);
  std::vector<std::unique_ptr<kernels::Weight>> weights(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < weights.size(); ++i) {
    threads.emplace_back([&, i] {
      const bool wide = i % 2 == 0;
      const void* const host = wide ? static_cast<const void*>(values.data()) : bits.data();
      Must(backend_->NewWeight(host, wide ? DType::kF32 : DType::kBF16, out, in, &weights[i]));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<uint32_t> tokens = {299, 0, 150};
  for (const auto& weight : weights) {
    const BackendBuffer rows(backend_, 3 * in * 2);
    Must(lane_->Embedding({weight.get(), tokens, {rows.as<void>(), DType::kBF16, in}}));
    const std::vector<uint16_t> got = Read<uint16_t>(rows);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto row = bits.begin() + tokens[i] * in;
      EXPECT_TRUE(std::equal(row, row + in, got.begin() + static_cast<int64_t>(i) * in));
    }
  }
}

TEST_F(BackendTest, RandomWeightsComeFromTheirSeed) {
  const int64_t out = 300, in = 256;
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < out; ++i) tokens.push_back(i);
  const auto rows = [&](uint64_t seed) {
    std::unique_ptr<kernels::Weight> weight;
    Must(backend_->NewRandomWeight(seed, 0.5f, out, in, &weight));
    const BackendBuffer y(backend_, static_cast<size_t>(out * in * 2));
    Must(lane_->Embedding({weight.get(), tokens, {y.as<void>(), DType::kBF16, in}}));
    return ReadBf16(y);
  };
  const std::vector<float> values = rows(1);
  EXPECT_EQ(values, rows(1));
  EXPECT_NE(values, rows(2));
  double sum = 0.0, squares = 0.0;
  for (float x : values) {
    EXPECT_LE(std::abs(x), 0.5f);
    sum += x;
    squares += double{x} * x;
  }
  const double count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0.0, 5e-3);
  EXPECT_NEAR(squares / count, 0.25 / 3.0, 2e-3);
}

TEST_F(BackendTest, ErrorsNameTheField) {
  kernels::MatMulParams product;
  EXPECT_THAT(lane_->MatMul(product).message(), HasSubstr("weight: is null"));
  class Foreign final : public kernels::Weight {
    int64_t out_features() const override { return 8; }
    int64_t in_features() const override { return 8; }
  } foreign;
  product.weight = &foreign;
  EXPECT_THAT(lane_->MatMul(product).message(), HasSubstr("was not made by a CUDA backend"));
  std::unique_ptr<kernels::Backend> other;
  const kernels::Status no_device =
      kernels::NewCudaBackend({.compute_dtype = DType::kBF16, .device = 4096}, &other);
  EXPECT_EQ(no_device.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(no_device.message(), HasSubstr("device: 4096 is not in [0, "));
  EXPECT_EQ(lane_->LatentPrefill({}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(lane_->MixtureOfExperts({}).code(), StatusCode::kInvalidArgument);
  Must(lane_->Synchronize());
}

TEST_F(BackendTest, LanesAndWeightsMayOutliveTheirBackend) {
  std::unique_ptr<kernels::Backend> other;
  Must(kernels::NewCudaBackend({.compute_dtype = DType::kBF16}, &other));
  std::unique_ptr<kernels::Operators> lane;
  std::unique_ptr<kernels::Weight> weight;
  Must(other->NewOperators(1, &lane));
  const std::vector<float> values(64 * 64, 0.5f);
  Must(other->NewWeight(values.data(), DType::kF32, 64, 64, &weight));
  other.reset();
  const BackendBuffer x = UploadBf16(std::vector<float>(64, 1.0f)), y(backend_, 64 * 4);
  Must(lane->MatMul({.x = {x.as<void>(), DType::kBF16, 64},
                     .weight = weight.get(),
                     .y = {y.as<void>(), DType::kF32, 64},
                     .rows = 1}));
  Must(lane->Synchronize());
  EXPECT_EQ(Read<float>(y), std::vector<float>(64, 32.0f));
}

}  // namespace
}  // namespace deltafill::test
