#pragma once
// A GGUF file's keys of its architecture ("qwen3.block_count"), named without it, and its tensors.
//
// Thread safety: const use is free. The model outlives it.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf_model.h"

namespace quire::loader_internal {

class GgufKeys {
 public:
  // Throws Error where the file does not say its architecture.
  explicit GgufKeys(const GgufModel& model)
      : model_(model), architecture_(model.header().required_string("general.architecture")) {}

  const std::string& architecture() const { return architecture_; }
  const GgufFile& header() const { return model_.header(); }

  bool has(std::string_view key) const { return header().has(whole(key)); }
  std::optional<int64_t> integer(std::string_view key, int64_t min, int64_t max) const {
    return header().integer(whole(key), min, max);
  }
  int64_t required_integer(std::string_view key, int64_t min, int64_t max) const {
    return header().required_integer(whole(key), min, max);
  }
  std::optional<double> number(std::string_view key, double min, double max) const {
    return header().number(whole(key), min, max);
  }
  std::optional<bool> boolean(std::string_view key) const { return header().boolean(whole(key)); }
  std::optional<std::string_view> string(std::string_view key) const {
    return header().string(whole(key));
  }
  // An integer that a file may give for each layer; they must be the same in all of them.
  std::optional<int64_t> integer_of_layers(std::string_view key, int64_t min, int64_t max) const;
  [[noreturn]] void fail(std::string_view key, std::string_view what) const {
    header().fail(whole(key), what);
  }

  // Null where there is no such tensor.
  const GgufTensor* tensor(std::string_view name) const;
  // The values of a float32 tensor of `size` numbers; nothing where there is none. Throws Error
  // where it has another type or shape, or holds numbers that are not above 0.
  std::optional<std::vector<double>> factors(std::string_view name, int64_t size) const;

 private:
  std::string whole(std::string_view key) const { return architecture_ + "." + std::string(key); }

  const GgufModel& model_;
  std::string architecture_;
};

}  // namespace quire::loader_internal
