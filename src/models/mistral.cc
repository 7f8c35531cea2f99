#include "models/mistral.h"

#include "models/decoder_family.h"

namespace quire {
namespace {

struct Mistral {
  static constexpr std::string_view kArchitecture = "MistralForCausalLM";
  static DecoderOptions options(const ModelConfig&) { return {}; }
};

}  // namespace

ModelFamily mistral_family() {
  return decoder_family<Mistral>();
}

}  // namespace quire
