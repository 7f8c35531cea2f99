#include "loader/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/temporary_folder_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kIndex = "model.safetensors.index.json";

class CheckpointTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  // A safetensors file whose tensors hold one byte each, their name's first.
  void write_shard(const std::string& file, const std::vector<std::string>& tensors) {
    json header = json::object();
    std::string data;
    for (const std::string& name : tensors) {
      header[name] = {
          {"dtype", "U8"}, {"shape", {1}}, {"data_offsets", {data.size(), data.size() + 1}}};
      data += name[0];
    }
    const std::string text = header.dump();
    std::string length(8, '\0');
    for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
    write(file, length + text + data);
  }

  void write_index(const json& weight_map) {
    write(kIndex, json{{"weight_map", weight_map}}.dump());
  }

  std::string error() {
    try {
      Checkpoint::open(folder_);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(CheckpointTest, OpensASingleFile) {
  write_shard("model.safetensors", {"a", "b"});
  const Checkpoint checkpoint = Checkpoint::open(folder_);
  EXPECT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.total_bytes(), 2u);
  ASSERT_NE(checkpoint.find("b"), nullptr);
  EXPECT_EQ(static_cast<char>(*checkpoint.find("b")->data), 'b');
  EXPECT_EQ(checkpoint.find("c"), nullptr);
  checkpoint.release(*checkpoint.find("a"));
  EXPECT_EQ(static_cast<char>(*checkpoint.find("a")->data), 'a');
}

TEST_F(CheckpointTest, OpensShardsInTheOrderOfTheFiles) {
  write_shard("model-2.safetensors", {"c"});
  write_shard("model-1.safetensors", {"b", "d"});
  write_index(
      {{"b", "model-1.safetensors"}, {"c", "model-2.safetensors"}, {"d", "model-1.safetensors"}});
  Checkpoint checkpoint = Checkpoint::open(folder_);
  const Checkpoint moved = std::move(checkpoint);
  ASSERT_EQ(moved.tensors().size(), 3u);
  EXPECT_EQ(moved.tensors()[0].name, "b");
  EXPECT_EQ(moved.tensors()[1].name, "d");
  EXPECT_EQ(moved.tensors()[2].name, "c");
  EXPECT_THAT(moved.find("c")->file, HasSubstr("model-2.safetensors"));
  EXPECT_EQ(static_cast<char>(*moved.find("c")->data), 'c');
  for (const CheckpointTensor& tensor : moved.tensors()) moved.release(tensor);
}

TEST_F(CheckpointTest, ASingleFileComesBeforeAnIndexAsInTransformers) {
  write_shard("model.safetensors", {"a"});
  write_index({{"b", "gone.safetensors"}});
  EXPECT_EQ(Checkpoint::open(folder_).tensors().size(), 1u);
}

TEST_F(CheckpointTest, SaysWhatTheFolderHoldsInstead) {
  EXPECT_THAT(error(), AllOf(HasSubstr("expected model.safetensors or"), HasSubstr("is empty")));
  write("pytorch_model.bin", "x");
  write("config.json", "{}");
  EXPECT_THAT(error(), AllOf(HasSubstr("PyTorch's own format is not read"),
                             HasSubstr("holds config.json, pytorch_model.bin")));
  write_shard("model-1.safetensors", {"a"});
  EXPECT_THAT(error(), HasSubstr("Shards need model.safetensors.index.json"));
  fs::remove_all(folder_);
  EXPECT_THAT(error(), HasSubstr("there is nothing"));
  std::ofstream(folder_) << "x";
  EXPECT_THAT(error(), HasSubstr("there is a file"));
}

TEST_F(CheckpointTest, IndexAndShardsMustAgree) {
  write_shard("1.safetensors", {"a", "b"});
  write_index({{"a", "1.safetensors"}});
  EXPECT_THAT(error(), HasSubstr("tensor \"b\" is in this file"));
  write_index({{"a", "1.safetensors"}, {"b", "1.safetensors"}, {"c", "1.safetensors"}});
  EXPECT_THAT(error(), AllOf(HasSubstr("1 tensors are missing"), HasSubstr("\"c\"")));
  write_index({{"a", "1.safetensors"}, {"b", "1.safetensors"}, {"c", "2.safetensors"}});
  EXPECT_THAT(error(), HasSubstr("lists 1 files that are missing: 2.safetensors."));
}

TEST_F(CheckpointTest, AnIndexCantLeadOutOfTheFolder) {
  for (const char* shard :
       {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "", "..", "passwd"}) {
    SCOPED_TRACE(shard);
    write_index({{"a", shard}});
    EXPECT_THAT(error(), HasSubstr("in the same folder"));
  }
  write_index({{"a", std::string("x\0.safetensors", 14)}});
  EXPECT_THAT(error(), HasSubstr("in the same folder"));
}

TEST_F(CheckpointTest, RefusesAMalformedIndex) {
  write(kIndex, "{");
  EXPECT_THAT(error(), AllOf(HasSubstr(kIndex), HasSubstr("not valid JSON")));
  write(kIndex, "[]");
  EXPECT_THAT(error(), HasSubstr("expected a JSON object"));
  write(kIndex, "{}");
  EXPECT_THAT(error(), HasSubstr("weight_map is missing or empty"));
  write_index(json::object());
  EXPECT_THAT(error(), HasSubstr("weight_map is missing or empty"));
  write_index("x");
  EXPECT_THAT(error(), HasSubstr("weight_map is \"x\"; expected an object"));
  write_index({{"a", 1}});
  EXPECT_THAT(error(), HasSubstr("gives 1 for \"a\""));
  write(kIndex, R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("field \"a\" is given twice"));
  write(kIndex, "{\"a\":" + std::string(100'000, '['));
  EXPECT_THAT(error(), HasSubstr("nested deeper than"));
}

TEST_F(CheckpointTest, NamesTheFileThatIsBroken) {
  write("model.safetensors", "short");
  EXPECT_THAT(error(), AllOf(HasSubstr("model.safetensors"), HasSubstr("5 bytes")));
}

}  // namespace
}  // namespace quire
