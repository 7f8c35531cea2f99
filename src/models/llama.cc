#include "models/llama.h"

#include "models/decoder_family.h"

namespace quire {
namespace {

struct Llama {
  static constexpr std::string_view kArchitecture = "LlamaForCausalLM";
  static DecoderOptions options(const ModelConfig& config) {
    return {.qkv_bias = config.attention_bias,
            .o_bias = config.attention_bias,
            .mlp_bias = config.mlp_bias};
  }
};

}  // namespace

ModelFamily llama_family() {
  return decoder_family<Llama>();
}

}  // namespace quire
