#include "loader/lora_adapter.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/temporary_folder_test_util.h"
#include "loader/lora_base.h"
#include "loader/safetensors_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

FileTensor ones(const std::string& name, const std::vector<int64_t>& shape, float value = 1) {
  size_t count = 1;
  for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
  return {name, "F32", shape, bytes_of(std::vector<float>(count, value))};
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A base of one layer with a norm, and an adapter of its q_proj.
class LoraFolders : public ::testing::Test {
 protected:
  LoraFolders() {
    base_tensors_ = {ones("model.embed_tokens.weight", {6, 4}), ones("model.norm.weight", {4}),
                     ones(kQ + ".weight", {8, 4}), ones(kQ + ".bias", {8})};
    config_ = {{"peft_type", "LORA"},
               {"base_model_name_or_path", "org/base"},
               {"r", 2},
               {"lora_alpha", 4},
               {"target_modules", {"q_proj"}}};
    tensors_ = {ones("base_model.model." + kQ + ".lora_A.weight", {2, 4}),
                ones("base_model.model." + kQ + ".lora_B.weight", {8, 2})};
  }

  LoraAdapter open() {
    write_file(folder_.path() / "adapter_config.json", config_.dump());
    write_file(folder_.path() / "adapter_model.safetensors", to_safetensors(tensors_));
    return LoraAdapter::open(folder_.path());
  }

  std::string open_error() {
    try {
      open();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::string fit_error(bool has_tied_head = false) {
    write_file(base_folder_.path() / "model.safetensors", to_safetensors(base_tensors_));
    const Checkpoint checkpoint = Checkpoint::open(base_folder_.path());
    ThreadPool pool(1);
    const LoraAdapter adapter = open();
    try {
      check_lora_fits(adapter, {checkpoint.tensors(), "BASE", has_tied_head}, pool);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  void expect_in(const std::string& part, const std::string& text) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  const std::string kQ = "model.layers.0.self_attn.q_proj";
  TemporaryFolder folder_;
  TemporaryFolder base_folder_;
  Json config_;
  std::vector<FileTensor> tensors_;
  std::vector<FileTensor> base_tensors_;
};

TEST_F(LoraFolders, AreRead) {
  tensors_.push_back(ones("base_model.model.model.norm.weight", {4}));
  const LoraAdapter adapter = open();
  ASSERT_EQ(adapter.modules().size(), 1U);
  const LoraModule& module = *adapter.find(kQ);
  EXPECT_EQ(std::tuple(module.rank, module.scale, module.inputs(), module.outputs()),
            std::tuple(2, 2.0, 4, 8));
  EXPECT_EQ(adapter.replaced().begin()->first, "model.norm.weight");
  EXPECT_EQ(adapter.find("model.layers.0.self_attn.k_proj"), nullptr);
  EXPECT_EQ(fit_error(), "no error");
}

// Adapters' names, wrapped modules, and matrices that are parameters instead of modules.
TEST_F(LoraFolders, NamesOfOlderVersions) {
  config_["use_dora"] = true;
  config_["target_modules"] = {"q_proj", "embed_tokens"};
  config_["modules_to_save"] = {"norm"};
  for (FileTensor& tensor : tensors_) tensor.name.insert(tensor.name.size() - 6, "mine.");
  tensors_.push_back(ones("base_model.model." + kQ + ".lora_magnitude_vector.default", {8}));
  const std::string embed = "base_model.model.model.embed_tokens.";
  tensors_.push_back(ones(embed + "lora_embedding_A.default", {2, 6}));
  tensors_.push_back(ones(embed + "lora_embedding_B", {4, 2}));
  tensors_.push_back(ones(embed + "lora_magnitude_vector.weight", {4}));
  tensors_.push_back(ones(embed + "base_layer.weight", {6, 4}));
  tensors_.push_back(ones("base_model.model.model.norm.modules_to_save.default.weight", {4}));
  tensors_.push_back(ones("base_model.model.model.norm.original_module.weight", {4}));
  const LoraAdapter adapter = open();
  EXPECT_TRUE(adapter.find("model.embed_tokens")->is_embedding);
  EXPECT_NE(adapter.find(kQ)->magnitude, nullptr);
  std::vector<std::string> replaced;
  for (const auto& [name, tensor] : adapter.replaced()) replaced.push_back(name);
  EXPECT_EQ(replaced, (std::vector<std::string>{"model.embed_tokens.weight", "model.norm.weight"}));
  EXPECT_EQ(fit_error(), "no error");
}

TEST_F(LoraFolders, RefusesWhatDoesNotFitTogether) {
  const std::vector<FileTensor> sound = tensors_;
  tensors_[0].shape = {1, 8};
  expect_in("is [1, 8] F32; expected [2, 8], as", open_error());
  expect_in("gives the rank 2", open_error());
  tensors_ = {sound[0]};
  expect_in("lacks the matrix lora_B", open_error());
  tensors_ = sound;
  tensors_.push_back(ones(kQ + ".lora_A.other.weight", {2, 4}));
  expect_in("stands for the same as", open_error());
  tensors_ = {sound[0], sound[1], ones("base_model.model." + kQ + ".lora_magnitude_vector", {8})};
  expect_in("has a lora_magnitude_vector, but use_dora", open_error());
  tensors_ = sound;
  tensors_[1].dtype = "I32";
  expect_in("is [8, 2] I32; expected F32, F16 or BF16", open_error());
  tensors_ = sound;
  tensors_.push_back(ones("base_model.model.prompt", {8}));
  expect_in("is unknown", open_error());
  tensors_ = {};
  expect_in("holds no weights", open_error());
  tensors_ = sound;
  config_["target_modules"] = {"k_proj"};
  expect_in("does not target it", open_error());
  config_["target_modules"] = {"q_proj"};
  config_["modules_to_save"] = {"lm_head"};
  expect_in("there is no weight of the module \"lm_head\"", open_error());
}

TEST_F(LoraFolders, FoldersThatAreNone) {
  write_file(folder_.path() / "adapter_model.bin", "");
  EXPECT_THROW(LoraAdapter::open(folder_.path()), Error);
  write_file(folder_.path() / "adapter_config.json", config_.dump());
  try {
    LoraAdapter::open(folder_.path());
    ADD_FAILURE() << "opened";
  } catch (const Error& error) {
    expect_in("save the adapter with safetensors", error.what());
  }
  EXPECT_THROW(LoraAdapter::open(folder_.path() / "nothing"), Error);
}

// As where a trainer saves in place while a server loads: of a mapped file, reading on would end
// the process.
TEST_F(LoraFolders, WhatIsReadStaysWhenTheFileIsRewritten) {
  open();
  const LoraAdapter adapter = LoraAdapter::read(folder_.path());
  fs::resize_file(folder_.path() / "adapter_model.safetensors", 0);
  ASSERT_EQ(adapter.modules().size(), 1);
  const CheckpointTensor& a = *adapter.modules()[0].a;
  const auto* bytes = reinterpret_cast<const char*>(a.data);
  EXPECT_EQ(std::string(bytes, a.bytes), bytes_of(std::vector<float>(8, 1)));
  EXPECT_THROW(LoraAdapter::read(folder_.path()), Error);
}

TEST_F(LoraFolders, RefusesAnotherBase) {
  const std::vector<FileTensor> sound = base_tensors_;
  base_tensors_[2].shape = {4, 8};
  expect_in("is [2, 4] F32; expected [2, 8], as " + kQ + ".weight of BASE is [4, 8].", fit_error());
  expect_in("Is it an adapter of another model? Its config names org/base.", fit_error());
  base_tensors_[2] = ones(kQ + ".weight", {6, 4});
  expect_in("is [8, 2] F32; expected [6, 2]", fit_error());
  base_tensors_ = {sound[0], sound[1]};
  expect_in("is for " + kQ + ".weight, which BASE does not have", fit_error());
  base_tensors_ = sound;
  base_tensors_[2].dtype = "I32";
  expect_in("expected F32, F16 or BF16 there", fit_error());
  base_tensors_ = sound;
  base_tensors_.push_back(ones("model.layers.1.self_attn.q_proj.weight", {8, 4}));
  expect_in("lacks the weights of 1 module that adapter_config.json targets", fit_error());
}

TEST_F(LoraFolders, ATiedHeadIsTheEmbedding) {
  tensors_.push_back(ones("base_model.model.lm_head.weight", {6, 4}));
  expect_in("is for lm_head.weight, which BASE does not have", fit_error(false));
  EXPECT_EQ(fit_error(true), "no error");
}

TEST_F(LoraFolders, RefusesNumbersThatAreNotFinite) {
  tensors_[1] = ones(tensors_[1].name, {8, 2}, std::numeric_limits<float>::quiet_NaN());
  expect_in("holds 16 NaN and 0 infinite of 16 numbers", fit_error());
}

}  // namespace
}  // namespace quire
