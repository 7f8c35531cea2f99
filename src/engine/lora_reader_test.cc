// What an adapter is refused for when its folder is read: memory.
#include "engine/lora_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder_test_util.h"
#include "engine/lora_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

class LoraMemoryLimit : public testing::Test {
 protected:
  LoraMemoryLimit() : target_(lora_target(golden_models() / kModel, config_, true, 16)) {}

  // Expects that an adapter with these trained copies takes `bytes`.
  void expect_needs(const std::vector<std::string>& copies, int64_t bytes) {
    const auto folder = root_.path() / "adapter";
    write_adapter(folder, kModel, {.copies = copies});
    target_.memory_left = [bytes] { return bytes; };
    EXPECT_NO_THROW(read_lora(folder, target_));
    target_.memory_left = [bytes] { return bytes - 1; };
    const std::string needed = "take " + std::to_string(bytes) + " bytes";
    const std::string left = std::to_string(bytes - 1) + " bytes are available";
    EXPECT_THAT(
        [&] { read_lora(folder, target_); },
        ThrowsMessage<Error>(AllOf(HasSubstr(needed), HasSubstr(left), HasSubstr("quire merge"))));
  }

  static constexpr const char* kModel = "qwen3-tied";
  const ModelConfig config_ = load_model_config(golden_models() / kModel);
  const TemporaryFolder root_;
  LoraTarget target_;
};

// The file's type is float32, of four bytes.
TEST_F(LoraMemoryLimit, CountsTheEmbeddingOnEachRank) {
  const int64_t numbers = config_.vocab_size * config_.hidden_size;
  expect_needs({"embed_tokens"}, numbers * (4 + 4));
  target_.num_embedding_ranks = 4;
  target_.copy_dtype = DType::kBFloat16;
  expect_needs({"embed_tokens"}, numbers * (4 + 4 * 2));
}

TEST_F(LoraMemoryLimit, CountsTheSharesOfOtherMatrices) {
  const int64_t numbers =
      config_.num_hidden_layers * config_.hidden_size * config_.intermediate_size;
  target_.num_embedding_ranks = 4;
  expect_needs({"down_proj"}, numbers * (4 + 4));
  target_.num_sharing_processes = 2;
  expect_needs({"down_proj"}, numbers * (4 + 2));
}

// Main memory has them only as the file does.
TEST_F(LoraMemoryLimit, OfGpusIsTheRoomOnEach) {
  const int64_t bytes = config_.vocab_size * config_.hidden_size * 4;
  const auto folder = root_.path() / "adapter";
  write_adapter(folder, kModel, {.copies = {"embed_tokens"}});
  ModelOptions model;
  model.config = config_;
  model.max_model_len = 16;
  model.device.type = DeviceType::kCuda;
  target_.gpu_needs = [model](std::span<const std::string> modules) {
    return lora_copy_needs(model, 1, modules);
  };
  target_.gpu_room = bytes;
  expect_needs({"embed_tokens"}, bytes);
  target_.memory_left = {};
  target_.gpu_room = bytes - 1;
  const std::string numbers = "take " + std::to_string(bytes) +
                              " bytes on a GPU, where --lora-copy-memory-bytes leaves " +
                              std::to_string(bytes - 1);
  EXPECT_THAT([&] { read_lora(folder, target_); },
              ThrowsMessage<Error>(AllOf(HasSubstr(numbers), HasSubstr("quire merge"))));
  EXPECT_THAT(trained_copies(folder, target_), testing::ElementsAre("model.embed_tokens"));
}

TEST_F(LoraMemoryLimit, DoesNotLookAtMatricesOfLowRank) {
  const auto folder = root_.path() / "adapter";
  write_adapter(folder, kModel, {});
  target_.memory_left = [] { return int64_t{0}; };
  target_.gpu_needs = [](std::span<const std::string>) { return GpuLoraCopies::Needs(); };
  EXPECT_NO_THROW(read_lora(folder, target_));
}

}  // namespace
}  // namespace quire
