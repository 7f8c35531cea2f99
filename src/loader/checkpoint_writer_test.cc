#include "loader/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/temporary_folder_test_util.h"
#include "loader/checkpoint.h"
#include "quire/error.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

const std::vector<WrittenTensor> kTensors = {
    {"a", "U8", {3}, 3}, {"b", "BF16", {2, 2}, 8}, {"c", "U8", {0}, 0}, {"d", "I64", {2}, 16}};

std::vector<std::byte> numbered(size_t count, size_t first) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(first + i);
  return bytes;
}

// Writes bytes that count up through the tensors, and reads the folder back.
void write_and_compare(size_t max_shard_bytes, int num_shards) {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), kTensors, max_shard_bytes);
  EXPECT_EQ(writer.num_shards(), num_shards);
  EXPECT_EQ(writer.total_bytes(), 27u);
  size_t begin = 0;
  for (const WrittenTensor& tensor : kTensors) {
    const std::vector<std::byte> bytes = numbered(tensor.bytes, begin);
    const size_t half = bytes.size() / 2;
    writer.write(std::span(bytes).first(half));
    writer.write(std::span(bytes).subspan(half));
    begin += tensor.bytes;
  }
  writer.finish();

  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  ASSERT_EQ(checkpoint.tensors().size(), kTensors.size());
  begin = 0;
  for (const WrittenTensor& expected : kTensors) {
    const CheckpointTensor* tensor = checkpoint.find(expected.name);
    ASSERT_NE(tensor, nullptr) << expected.name;
    EXPECT_EQ(tensor->shape, expected.shape);
    EXPECT_EQ(tensor->dtype, expected.dtype);
    const std::vector<std::byte> bytes = numbered(expected.bytes, begin);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), tensor->data)) << expected.name;
    begin += expected.bytes;
  }
}

TEST(CheckpointWriter, OneFile) {
  write_and_compare(kMaxShardBytes, 1);
}

TEST(CheckpointWriter, Shards) {
  write_and_compare(11, 2);
  write_and_compare(10, 3);
  write_and_compare(1, 3);
}

TEST(CheckpointWriter, NamesWhatCannotBeWritten) {
  try {
    CheckpointWriter writer("/nowhere/at/all", kTensors);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/at/all/model.safetensors: the file cannot be"));
  }
}

TEST(CheckpointWriter, RefusesANameThatComesTwice) {
  const TemporaryFolder folder;
  std::vector<WrittenTensor> tensors = kTensors;
  tensors.push_back(tensors.front());
  try {
    CheckpointWriter writer(folder.path(), tensors);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("two tensors would have the name " + tensors.front().name + ";"));
  }
}

}  // namespace
}  // namespace quire
