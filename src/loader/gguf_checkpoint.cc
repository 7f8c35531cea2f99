#include "loader/gguf_checkpoint.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_map>

#include "loader/gguf_blocks.h"
#include "loader/gguf_keys.h"
#include "loader/gguf_names.h"
#include "loader/model_limits.h"
#include "quire/error.h"

namespace quire {
namespace {

using loader_internal::GgufKeys;

// The heads of the projections whose rows llama.cpp's converter puts in another order: those of
// llama's queries and keys. 0: it leaves them.
struct RotaryHeads {
  int64_t query = 0;
  int64_t key = 0;
};

RotaryHeads rotary_heads_of(const GgufKeys& keys) {
  if (keys.architecture() != "llama") return {};
  const auto heads = [&](const char* key) {
    return keys.integer_of_layers(key, 1, loader_internal::kMaxHeads);
  };
  const int64_t query = heads("attention.head_count").value_or(0);
  return {query, heads("attention.head_count_kv").value_or(query)};
}

int64_t heads_of(const RotaryHeads& heads, std::string_view name) {
  if (name.find(".self_attn.q_proj.") != std::string_view::npos) return heads.query;
  return name.find(".self_attn.k_proj.") != std::string_view::npos ? heads.key : 0;
}

bool is_loaded_type(const GgufType& type) {
  return type.name == "F32" || type.name == "F16" || type.name == "BF16" ||
         gguf_integers(type) != nullptr;
}

CheckpointTensor to_checkpoint_tensor(const GgufTensor& tensor, const GgufKeys& keys,
                                      const RotaryHeads& heads, const std::string& file) {
  const auto fail = [&](const std::string& what) {
    throw Error(
        fmt::format("{}: the tensor {} {}.", file, loader_internal::shown_name(tensor.name), what));
  };
  if (!is_loaded_type(*tensor.type)) {
    fail(fmt::format("is of the type {}; quire reads F32, F16, BF16, {}", tensor.type->name,
                     quantised_gguf_types()));
  }
  if (tensor.shape.size() == 1 && tensor.type->block_values > 1) {
    fail(fmt::format("is a vector of the type {}; expected F32, F16 or BF16", tensor.type->name));
  }
  CheckpointTensor result;
  result.name = hugging_face_name(keys.architecture(), tensor.name);
  result.stored_name = tensor.name;
  result.file = file;
  result.dtype = tensor.type->name;
  result.shape = tensor.shape;
  result.data = tensor.data.data();
  result.bytes = tensor.data.size();
  result.rotary_heads = heads_of(heads, result.name);
  if (result.rotary_heads != 0 && tensor.shape.front() % (2 * result.rotary_heads) != 0) {
    fail(fmt::format("has {} rows; expected an even number for each of the {} heads",
                     tensor.shape.front(), result.rotary_heads));
  }
  return result;
}

}  // namespace

std::vector<CheckpointTensor> gguf_checkpoint_tensors(const GgufModel& model) {
  const GgufKeys keys(model);
  const RotaryHeads heads = rotary_heads_of(keys);
  std::vector<CheckpointTensor> tensors;
  std::unordered_map<std::string, std::string_view> sources;
  for (const GgufModel::Part& part : model.parts()) {
    for (const GgufTensor& tensor : part.file.tensors()) {
      if (is_config_tensor(tensor.name)) continue;
      tensors.push_back(to_checkpoint_tensor(tensor, keys, heads, part.file.name()));
      const auto [it, is_new] = sources.emplace(tensors.back().name, tensor.name);
      if (is_new) continue;
      throw Error(fmt::format("{}: the tensors {} and {} are both {}.", part.file.name(),
                              loader_internal::shown_name(it->second),
                              loader_internal::shown_name(tensor.name), it->first));
    }
  }
  return tensors;
}

}  // namespace quire
