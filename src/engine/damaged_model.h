#pragma once
// A tiny checkpoint of tests/golden/models whose last norm has NaN weights, so that all logits are
// NaN.
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/test_models.h"
#include "loader/checkpoint.h"

namespace quire::engine_test {

class ModelWithoutLogits {
 public:
  explicit ModelWithoutLogits(const std::string& name)
      : folder_(std::filesystem::temp_directory_path() /
                ("quire_no_logits_" + name + "_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(golden_models() / name, folder_);
    const Checkpoint checkpoint = Checkpoint::open(folder_);
    const CheckpointTensor* norm = checkpoint.find("model.norm.weight");
    // Bits that are all ones are a NaN of every type.
    const std::string path = (folder_ / "model.safetensors").string();
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const std::byte* const first = checkpoint.tensors().front().data;
    file.seekp(
        static_cast<std::streamoff>(std::filesystem::file_size(path) - checkpoint.total_bytes()) +
        (norm->data - first));
    file << std::string(norm->bytes, '\xff');
  }
  ~ModelWithoutLogits() { std::filesystem::remove_all(folder_); }
  ModelWithoutLogits(const ModelWithoutLogits&) = delete;
  ModelWithoutLogits& operator=(const ModelWithoutLogits&) = delete;

  std::string folder() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

}  // namespace quire::engine_test
