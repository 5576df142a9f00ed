#include "coordinator/front/layout.h"

#include <gtest/gtest.h>

#include <cstring>

namespace deltafill::coordinator {
namespace {

constexpr uint32_t kH = 3, kV = 2, kK = 4;

PartHeader Recurrent() {
  return {PartKind::kRecurrent, PartDType::kF32, {0, 5}, {kH, kV, kK, 1}, 64};
}
PartHeader Conv() {
  return {PartKind::kConvTail, PartDType::kBF16, {0, 5}, {kH * (2 * kK + kV), 3, 1, 1}, 64};
}

// recurrent[h][v][k] = 100 h + 10 v + k.
std::vector<std::byte> RecurrentBytes() {
  std::vector<std::byte> bytes;
  for (uint32_t h = 0; h < kH; ++h) {
    for (uint32_t v = 0; v < kV; ++v) {
      for (uint32_t k = 0; k < kK; ++k) {
        const float value = static_cast<float>(100 * h + 10 * v + k);
        const auto* raw = reinterpret_cast<const std::byte*>(&value);
        bytes.insert(bytes.end(), raw, raw + sizeof(value));
      }
    }
  }
  return bytes;
}

// conv[channel][row] = 10 * channel + row + 1.
std::vector<std::byte> ConvBytes() {
  std::vector<std::byte> bytes;
  for (uint32_t channel = 0; channel < Conv().shape[0]; ++channel) {
    for (uint32_t row = 0; row < 3; ++row) {
      const auto value = static_cast<uint16_t>(10 * channel + row + 1);
      const auto* raw = reinterpret_cast<const std::byte*>(&value);
      bytes.insert(bytes.end(), raw, raw + sizeof(value));
    }
  }
  return bytes;
}

template <typename Value>
std::vector<Value> Values(std::string_view bytes) {
  std::vector<Value> values(bytes.size() / sizeof(Value));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The tensor's bytes among LayerBytes's.
std::string_view Piece(const std::string& bytes, const std::vector<TensorShape>& shapes, size_t i) {
  size_t at = 0;
  for (size_t j = 0; j < i; ++j) at += shapes[j].ByteCount();
  return std::string_view(bytes).substr(at, shapes[i].ByteCount());
}

TEST(Layout, DimsFollowFromTheParts) {
  const auto dims = DeriveStateDims(Recurrent(), Conv());
  ASSERT_TRUE(dims.ok());
  EXPECT_EQ(dims->heads, kH);
  EXPECT_EQ(dims->value_dim, kV);
  EXPECT_EQ(dims->key_dim, kK);
  EXPECT_EQ(dims->conv_rows, 3u);
  PartHeader other = Conv();
  other.shape[0] += 1;
  EXPECT_EQ(DeriveStateDims(Recurrent(), other).status().code(), absl::StatusCode::kInternal);
  other = Conv();
  other.layers = {0};
  EXPECT_FALSE(DeriveStateDims(Recurrent(), other).ok());
  EXPECT_FALSE(DeriveStateDims(Conv(), Recurrent()).ok());
}

TEST(Layout, CanonicalIsAsStored) {
  const StateDims dims = *DeriveStateDims(Recurrent(), Conv());
  const auto shapes = LayerShapes(TensorLayout::kCanonical, 5, dims, {0, kH});
  ASSERT_EQ(shapes.size(), 4u);
  EXPECT_EQ(shapes[0].name, "layers.5.recurrent_state");
  EXPECT_EQ(shapes[0].shape, (std::vector<uint64_t>{kH, kV, kK}));
  EXPECT_EQ(shapes[1].name, "layers.5.conv_state.q");
  EXPECT_EQ(shapes[1].shape, (std::vector<uint64_t>{kH, kK, 3}));
  EXPECT_EQ(shapes[1].dtype, PartDType::kBF16);
  EXPECT_EQ(shapes[3].name, "layers.5.conv_state.v");
  EXPECT_EQ(shapes[3].shape, (std::vector<uint64_t>{kH, kV, 3}));
  const std::vector<std::byte> recurrent = RecurrentBytes(), conv = ConvBytes();
  const std::string bytes = LayerBytes(TensorLayout::kCanonical, dims, {0, kH}, recurrent, conv);
  std::string stored(reinterpret_cast<const char*>(recurrent.data()), recurrent.size());
  stored.append(reinterpret_cast<const char*>(conv.data()), conv.size());
  EXPECT_EQ(bytes, stored);
}

TEST(Layout, HeadRangesCutEveryTensor) {
  const StateDims dims = *DeriveStateDims(Recurrent(), Conv());
  const auto shapes = LayerShapes(TensorLayout::kCanonical, 0, dims, {1, 3});
  const std::string bytes =
      LayerBytes(TensorLayout::kCanonical, dims, {1, 3}, RecurrentBytes(), ConvBytes());
  EXPECT_EQ(shapes[0].shape[0], 2u);
  EXPECT_EQ(Values<float>(Piece(bytes, shapes, 0)).front(), 100.0f);
  EXPECT_EQ(Values<float>(Piece(bytes, shapes, 0)).back(), 213.0f);
  EXPECT_EQ(Values<uint16_t>(Piece(bytes, shapes, 1)).front(), 10 * kK + 1);
  EXPECT_EQ(Values<uint16_t>(Piece(bytes, shapes, 2)).front(), 10 * (kH * kK + kK) + 1);
  EXPECT_EQ(Values<uint16_t>(Piece(bytes, shapes, 3)).front(), 10 * (2 * kH * kK + kV) + 1);
  EXPECT_EQ(Values<uint16_t>(Piece(bytes, shapes, 3)).back(), 10 * (Conv().shape[0] - 1) + 3);
}

// Two heads of values share each head of q and k.
TEST(Layout, GroupedValuesHaveFewerHeadsOfKeys) {
  PartHeader recurrent = Recurrent(), conv = Conv();
  recurrent.shape = {4, kV, kK, 1};
  conv.shape = {2 * kK + 2 * kK + 4 * kV, 3, 1, 1};
  const auto dims = DeriveStateDims(recurrent, conv);
  ASSERT_TRUE(dims.ok()) << dims.status();
  EXPECT_EQ(dims->heads, 4u);
  EXPECT_EQ(dims->sharing, 2u);
  std::vector<std::byte> states(4 * kV * kK * sizeof(float));
  std::vector<std::byte> tails;
  for (uint16_t channel = 0; channel < conv.shape[0]; ++channel) {
    const uint16_t row[3] = {channel, channel, channel};
    const auto* raw = reinterpret_cast<const std::byte*>(row);
    tails.insert(tails.end(), raw, raw + sizeof(row));
  }
  const auto first_channels = [&](TensorLayout layout, HeadRange heads) {
    const auto shapes = LayerShapes(layout, 0, *dims, heads);
    const std::string bytes = LayerBytes(layout, *dims, heads, states, tails);
    std::vector<uint16_t> first;
    size_t total = shapes[0].ByteCount();
    for (size_t i = 1; i < 4; ++i) {
      first.push_back(Values<uint16_t>(Piece(bytes, shapes, i))[layout == TensorLayout::kFla]);
      total += shapes[i].ByteCount();
    }
    EXPECT_EQ(total, bytes.size());
    return first;
  };
  for (const TensorLayout layout : {TensorLayout::kCanonical, TensorLayout::kFla}) {
    EXPECT_EQ(first_channels(layout, {0, 4}), (std::vector<uint16_t>{0, 2 * kK, 4 * kK}));
    EXPECT_EQ(first_channels(layout, {2, 4}), (std::vector<uint16_t>{kK, 3 * kK, 4 * kK + 2 * kV}));
    EXPECT_EQ(first_channels(layout, {1, 3}), (std::vector<uint16_t>{0, 2 * kK, 4 * kK + kV}));
  }
  const auto all = LayerShapes(TensorLayout::kCanonical, 0, *dims, {0, 4});
  EXPECT_EQ(all[0].shape, (std::vector<uint64_t>{4, kV, kK}));
  EXPECT_EQ(all[1].shape, (std::vector<uint64_t>{2, kK, 3}));
  EXPECT_EQ(all[3].shape, (std::vector<uint64_t>{4, kV, 3}));
  const auto across = LayerShapes(TensorLayout::kFla, 0, *dims, {1, 3});
  EXPECT_EQ(across[2].shape, (std::vector<uint64_t>{1, 2 * kK, 4}));
  conv.shape[0] = 3 * 2 * kK + 4 * kV;  // 3 heads of keys, 4 of values
  EXPECT_FALSE(DeriveStateDims(recurrent, conv).ok());
}

TEST(Layout, FlaHasABatchAndPadsTheConvolution) {
  const StateDims dims = *DeriveStateDims(Recurrent(), Conv());
  const auto shapes = LayerShapes(TensorLayout::kFla, 0, dims, {1, 2});
  EXPECT_EQ(shapes[0].shape, (std::vector<uint64_t>{1, 1, kV, kK}));
  EXPECT_EQ(shapes[1].shape, (std::vector<uint64_t>{1, kK, 4}));
  EXPECT_EQ(shapes[3].shape, (std::vector<uint64_t>{1, kV, 4}));
  const std::string bytes =
      LayerBytes(TensorLayout::kFla, dims, {1, 2}, RecurrentBytes(), ConvBytes());
  EXPECT_EQ(Values<float>(Piece(bytes, shapes, 0)),
            (std::vector<float>{100, 101, 102, 103, 110, 111, 112, 113}));
  const auto q = Values<uint16_t>(Piece(bytes, shapes, 1));
  EXPECT_EQ(std::vector<uint16_t>(q.begin(), q.begin() + 8),
            (std::vector<uint16_t>{0, 41, 42, 43, 0, 51, 52, 53}));
  size_t total = 0;
  for (const TensorShape& shape : shapes) total += shape.ByteCount();
  EXPECT_EQ(total, bytes.size());
}

TEST(Layout, RangesAndNamesAreChecked) {
  const StateDims dims = *DeriveStateDims(Recurrent(), Conv());
  EXPECT_EQ(CheckHeadRange(0, 0, dims)->end, kH);
  EXPECT_EQ(CheckHeadRange(1, 2, dims)->begin, 1u);
  EXPECT_NE(CheckHeadRange(0, 4, dims).status().message().find("head_end: 4"), std::string::npos);
  EXPECT_NE(CheckHeadRange(3, 0, dims).status().message().find("head_begin"), std::string::npos);
  EXPECT_EQ(*ParseTensorLayout(""), TensorLayout::kCanonical);
  EXPECT_EQ(*ParseTensorLayout("fla"), TensorLayout::kFla);
  EXPECT_EQ(ParseTensorLayout("vllm").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace deltafill::coordinator
