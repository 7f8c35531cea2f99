#include "models/qwen3.h"

#include "models/decoder_family.h"

namespace quire {
namespace {

struct Qwen3 {
  static constexpr std::string_view kArchitecture = "Qwen3ForCausalLM";
  static DecoderOptions options(const ModelConfig& config) {
    return {.qkv_bias = config.attention_bias, .o_bias = config.attention_bias, .qk_norm = true};
  }
};

}  // namespace

ModelFamily qwen3_family() {
  return decoder_family<Qwen3>();
}

}  // namespace quire
