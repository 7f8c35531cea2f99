#include "models/decoder_options.h"

#include <fmt/format.h>

#include <string_view>

#include "base/check.h"
#include "quire/error.h"

namespace quire {

Placement matrix_placement(const ModelOptions& options) {
  Placement place{.dtype = options.dtype,
                  .at = {options.rank, options.size},
                  .device = options.device,
                  .rounding = options.rounding,
                  .has_kv_scales = options.has_kv_scales};
  const auto& quantization = options.config.quantization;
  const bool names_dense_layers = quantization && !quantization->is_gguf();
  if (options.rounding == WeightRounding::kFloat8 && names_dense_layers) {
    place.rounding = WeightRounding::kNone;
  }
  return place;
}

// Errors in the tables cost more than in other matrices.
Placement table_placement(const ModelOptions& options) {
  Placement place = matrix_placement(options);
  place.may_be_quantised = false;
  const bool stays_dense = options.rounding == WeightRounding::kFloat8 || !options.device.is_cpu();
  if (place.rounding != WeightRounding::kNone) {
    place.rounding = stays_dense ? WeightRounding::kNone : WeightRounding::kInt8;
  }
  return place;
}

namespace {

void check_divides(std::string_view field, int64_t value, int size) {
  if (value % size == 0) return;
  throw Error(
      fmt::format("tensor_parallel_size is {}, but the model's {} is {}; choose a size that "
                  "divides it.",
                  size, field, value));
}

}  // namespace

const ModelOptions& checked_decoder_options(const ModelOptions& options) {
  const ModelConfig& config = options.config;
  if (config.hidden_act != "silu") {
    throw Error(fmt::format("config.json: hidden_act is \"{}\"; {} is supported with \"silu\".",
                            config.hidden_act, config.architecture));
  }
  check(options.dtype == DType::kFloat32 || options.dtype == DType::kBFloat16 ||
            (options.dtype == DType::kFloat16 && !options.device.is_cpu()),
        "weights are float32 or bfloat16 in memory, or on a GPU float16");
  check(options.size >= 1 && options.rank >= 0 && options.rank < options.size,
        "a rank is a place in its group");
  check(options.max_model_len >= 1, "a model has positions");
  check_divides("num_attention_heads", config.num_attention_heads, options.size);
  check_divides("intermediate_size", config.intermediate_size, options.size);
  if (config.num_key_value_heads % options.size != 0 &&
      options.size % config.num_key_value_heads != 0) {
    throw Error(
        fmt::format("tensor_parallel_size is {}, but the model's num_key_value_heads is {}; "
                    "choose a size that divides it or is a multiple of it.",
                    options.size, config.num_key_value_heads));
  }
  const RopeConfig& rope = config.rope;
  if (!rope.can_rotate(config.head_dim)) {
    throw Error(
        fmt::format("config.json: head_dim {} times partial_rotary_factor {} makes {} "
                    "rotary elements; expected an even number, at least {}.",
                    config.head_dim, rope.partial_rotary_factor, rope.rotary_dim(config.head_dim),
                    rope.min_rotary_dim()));
  }
  return options;
}

}  // namespace quire
