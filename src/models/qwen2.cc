#include "models/qwen2.h"

#include "models/decoder_family.h"

namespace quire {
namespace {

struct Qwen2 {
  static constexpr std::string_view kArchitecture = "Qwen2ForCausalLM";
  static DecoderOptions options(const ModelConfig&) { return {.qkv_bias = true}; }
};

}  // namespace

ModelFamily qwen2_family() {
  return decoder_family<Qwen2>();
}

}  // namespace quire
