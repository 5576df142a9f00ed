// The safetensors reader's refusals, the writer, and checkpoints of several files.
#include "worker/model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/worker/model_fixture.h"
#include "worker/model/checkpoint.h"
#include "worker/model/float_formats.h"
#include "worker/model/safetensors_writer.h"

namespace deltafill::test {
namespace {

using testing::HasSubstr;

std::string FileOf(const std::string& header, size_t payload_bytes) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  return file + header + std::string(payload_bytes, 'x');
}

std::string Fault(const std::string& file) {
  const auto parsed = ParseSafetensors(file, "a.safetensors");
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss) << parsed.status();
  EXPECT_THAT(std::string(parsed.status().message()), testing::StartsWith("a.safetensors: "));
  return std::string(parsed.status().message());
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                      ",\"data_offsets\":", offsets, "}");
}

TEST(SafetensorsTest, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string header =
      "{" + Entry("b", "F32", "[2,3]", "[4,28]") + "," + Entry("a", "BF16", "[2]", "[0,4]") + "," +
      Entry("none", "I64", "[0,5]", "[28,28]") + "," + Entry("scalar", "U8", "[]", "[28,29]") +
      ",\"__metadata__\":{\"format\":\"pt\"}}  ";
  const std::string file = FileOf(header, 29);
  const auto parsed = ParseSafetensors(file, "a.safetensors");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->tensors.size(), 4u);
  EXPECT_EQ(parsed->tensors[0].name, "a");
  EXPECT_EQ(parsed->tensors[1].name, "b");
  EXPECT_EQ(parsed->tensors[1].begin, 8 + header.size() + 4);
  EXPECT_EQ(parsed->tensors[1].end, 8 + header.size() + 28);
  EXPECT_EQ(parsed->tensors[3].shape.size(), 0u);
  EXPECT_EQ(parsed->metadata.at("format"), "pt");
}

TEST(SafetensorsTest, HeaderFaults) {
  EXPECT_THAT(Fault("1234567"), HasSubstr("shorter than"));
  std::string huge(16, '\0');
  const uint64_t length = kSafetensorsHeaderBytesMax + 1;
  std::memcpy(huge.data(), &length, 8);
  EXPECT_THAT(Fault(huge), HasSubstr("over the limit of 104857600"));
  std::string past = FileOf("{}", 0);
  past[0] = 3;
  EXPECT_THAT(Fault(past), HasSubstr("past the file's end"));
  EXPECT_THAT(Fault(FileOf("", 0)), HasSubstr("does not start with '{'"));
  EXPECT_THAT(Fault(FileOf(" {}", 0)), HasSubstr("does not start with '{'"));
  EXPECT_THAT(Fault(FileOf("{\"a\":", 0)), HasSubstr("not valid JSON"));
  EXPECT_THAT(Fault(FileOf("{}", 3)), HasSubstr("tensors end at byte 10 of 13"));
  EXPECT_THAT(Fault(FileOf("{\"__metadata__\":3}", 0)), HasSubstr("__metadata__"));
  EXPECT_THAT(Fault(FileOf("{\"__metadata__\":{\"a\":3}}", 0)), HasSubstr("__metadata__"));
}

TEST(SafetensorsTest, TensorFaultsNameTheTensor) {
  const auto fault = [](const std::string& entries, size_t bytes) {
    return Fault(FileOf("{" + entries + "}", bytes));
  };
  EXPECT_THAT(fault(Entry("w", "F32", "[2]", "[0,8]") + "," + Entry("w", "F32", "[2]", "[0,8]"), 8),
              HasSubstr("key 'w' twice"));
  EXPECT_THAT(fault(Entry("w", "F31", "[2]", "[0,8]"), 8), HasSubstr("tensor 'w': dtype"));
  EXPECT_THAT(fault(Entry("w", "F32", "[-2]", "[0,8]"), 8), HasSubstr("tensor 'w': shape"));
  EXPECT_THAT(fault(Entry("w", "F32", "2", "[0,8]"), 8), HasSubstr("tensor 'w': shape"));
  EXPECT_THAT(fault(Entry("w", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4),
              HasSubstr("tensor 'w': shape"));
  EXPECT_THAT(fault(Entry("w", "F32", "[3]", "[0,8]"), 8),
              HasSubstr("tensor 'w': shape and dtype"));
  EXPECT_THAT(fault(Entry("w", "F32", "[4611686018427387904,4]", "[0,8]"), 8),
              HasSubstr("tensor 'w': shape and dtype"));
  EXPECT_THAT(fault(Entry("w", "F32", "[2]", "[0,12]"), 8), HasSubstr("tensor 'w': data_offsets"));
  EXPECT_THAT(fault(Entry("w", "F32", "[2]", "[8,0]"), 8), HasSubstr("tensor 'w': data_offsets"));
  EXPECT_THAT(fault(Entry("w", "F32", "[2]", "[0]"), 8), HasSubstr("tensor 'w': data_offsets"));
  EXPECT_THAT(fault(Entry("w", "F32", "[2]", "[0.0,8.0]"), 8),
              HasSubstr("tensor 'w': data_offsets"));
  EXPECT_THAT(fault("\"w\":[]", 0), HasSubstr("tensor 'w': needs exactly"));
  EXPECT_THAT(fault("\"w\":{\"dtype\":\"F32\"}", 0), HasSubstr("tensor 'w': needs exactly"));
  EXPECT_THAT(fault(Entry("v", "U8", "[4]", "[0,4]") + "," + Entry("w", "U8", "[4]", "[2,6]"), 6),
              HasSubstr("tensor 'w' overlaps"));
  EXPECT_THAT(fault(Entry("v", "U8", "[4]", "[0,4]") + "," + Entry("w", "U8", "[4]", "[5,9]"), 9),
              HasSubstr("tensor 'w' leaves a gap"));
  EXPECT_THAT(fault(Entry(std::string(513, 'n'), "U8", "[1]", "[0,1]"), 1), HasSubstr("over 512"));
}

TEST(SafetensorsTest, EveryTruncationIsNoticed) {
  const std::string file = FileOf("{" + Entry("w", "F32", "[2]", "[0,8]") + "}", 8);
  ASSERT_TRUE(ParseSafetensors(file, "a").ok());
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(ParseSafetensors(std::string_view(file).substr(0, size), "a").ok()) << size;
  }
}

TEST(SafetensorsWriterTest, WritesWhatTheReaderReads) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/out.safetensors";
  const std::vector<TensorPlan> plans = {{"z \"quoted\"", "F32", {2}}, {"a", "BF16", {3, 1}}};
  auto writer = SafetensorsWriter::Create(path, plans, {{"made", "here"}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::string payload = "abcdefghijklmn";
  const auto bytes = std::as_bytes(std::span(payload));
  ASSERT_TRUE((*writer)->Append(bytes.first(5)).ok());
  EXPECT_EQ((*writer)->Finish().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE((*writer)->Append(bytes.subspan(5)).ok());
  EXPECT_EQ((*writer)->Append(bytes.first(1)).code(), absl::StatusCode::kOutOfRange);
  ASSERT_TRUE((*writer)->Finish().ok());

  const std::string file = ReadFile(path);
  const auto parsed = ParseSafetensors(file, path);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->tensors.size(), 2u);
  EXPECT_EQ(parsed->tensors[0].name, "z \"quoted\"");
  EXPECT_EQ(parsed->tensors[0].begin % 8, 0u);
  EXPECT_EQ(parsed->tensors[1].shape, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(file.substr(parsed->tensors[0].begin), payload);
  EXPECT_EQ(parsed->metadata.at("made"), "here");
}

TEST(SafetensorsWriterTest, NothingIsLeftOfAnUnfinishedFile) {
  TemporaryDirectory directory;
  {
    auto writer = SafetensorsWriter::Create(directory.path() + "/x", {{"w", "U8", {4}}}, {});
    ASSERT_TRUE(writer.ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_FALSE(SafetensorsWriter::Create(directory.path() + "/x", {{"w", "F31", {4}}}, {}).ok());
  EXPECT_FALSE(
      SafetensorsWriter::Create(directory.path() + "/x", {{"w", "U8", {}}, {"w", "U8", {}}}, {})
          .ok());
  EXPECT_EQ(SafetensorsWriter::Create("/nowhere/x", {}, {}).status().code(),
            absl::StatusCode::kNotFound);
}

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : path_(directory_.path() + "/model") { CopyFixture("tied_d64_sharded", path_); }

  std::string Fault() {
    const auto checkpoint = Checkpoint::Open(path_);
    EXPECT_EQ(checkpoint.status().code(), absl::StatusCode::kDataLoss) << checkpoint.status();
    return std::string(checkpoint.status().message());
  }

  TemporaryDirectory directory_;
  const std::string path_;
  const std::string index_ = path_ + "/model.safetensors.index.json";
  const std::string first_ = path_ + "/model-00001-of-00002.safetensors";
  const std::string second_ = path_ + "/model-00002-of-00002.safetensors";
};

TEST_F(CheckpointTest, ShardsWithAndWithoutIndex) {
  const auto indexed = Checkpoint::Open(path_);
  ASSERT_TRUE(indexed.ok()) << indexed.status();
  std::filesystem::remove(index_);
  const auto listed = Checkpoint::Open(path_);
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ((*indexed)->tensors().size(), (*listed)->tensors().size());
  EXPECT_EQ((*indexed)->files().size(), 2u);
  std::filesystem::remove(first_);
  std::filesystem::remove(second_);
  EXPECT_EQ(Checkpoint::Open(path_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, IndexFaults) {
  const std::string index = ReadFile(index_);
  WriteFile(index_, "{\"weight_map\": 3}");
  EXPECT_THAT(Fault(), HasSubstr("index.json: weight_map"));
  WriteFile(index_, "{");
  EXPECT_THAT(Fault(), HasSubstr("index.json: not valid JSON"));
  WriteFile(index_, "{\"weight_map\": {\"w\": \"../x.safetensors\"}}");
  EXPECT_THAT(Fault(), HasSubstr("tensor 'w' is not mapped to a file"));
  WriteFile(index_, "{\"weight_map\": {\"w\": \"model-00001-of-00002.safetensors\"}}");
  EXPECT_THAT(Fault(), HasSubstr("00001-of-00002.safetensors: tensor 'w' of the index is missing"));
  WriteFile(index_, index);
  std::filesystem::remove(second_);
  EXPECT_THAT(Fault(), HasSubstr("shard model-00002-of-00002.safetensors is missing"));
}

TEST_F(CheckpointTest, ATensorInTwoShardsWithoutIndex) {
  std::filesystem::remove(index_);
  std::filesystem::copy_file(first_, path_ + "/copy.safetensors");
  EXPECT_THAT(Fault(), HasSubstr("' is also in "));
}

TEST_F(CheckpointTest, CorruptShardIsNamed) {
  WriteFile(second_, ReadFile(second_).substr(0, 1000));
  EXPECT_THAT(Fault(), HasSubstr(second_));
}

TEST(FloatFormatsTest, HalfAndBf16) {
  EXPECT_EQ(FloatFromHalf(0x3c00), 1.0f);
  EXPECT_EQ(FloatFromHalf(0xc000), -2.0f);
  EXPECT_EQ(FloatFromHalf(0x7bff), 65504.0f);
  EXPECT_EQ(FloatFromHalf(0x0001), 0x1p-24f);
  EXPECT_EQ(FloatFromHalf(0x83ff), -1023 * 0x1p-24f);
  EXPECT_EQ(FloatFromHalf(0x0400), 0x1p-14f);
  EXPECT_TRUE(std::signbit(FloatFromHalf(0x8000)));
  EXPECT_EQ(FloatFromBf16(0x3f80), 1.0f);
  EXPECT_EQ(Bf16FromFloat(1.00390625f), 0x3f80);  // half way: to even
  EXPECT_EQ(Bf16FromFloat(1.01171875f), 0x3f82);  // half way: to even
  EXPECT_EQ(Bf16FromFloat(1.004f), 0x3f81);
}

}  // namespace
}  // namespace deltafill::test
