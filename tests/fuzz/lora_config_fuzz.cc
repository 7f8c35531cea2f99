// The bytes are an adapter_config.json. What is accepted must give every module a rank and a scale.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "loader/lora_config.h"
#include "quire/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::array<std::string_view, 4> kModules = {"model.layers.0.self_attn.q_proj",
                                                        "model.layers.31.mlp.down_proj",
                                                        "model.embed_tokens", "lm_head"};
  try {
    const quire::LoraConfig config = quire::parse_lora_config(
        std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    if (config.kind().empty()) std::abort();
    for (const std::string_view module : kModules) {
      if (config.targets_module(module) && config.saves_module(module)) std::abort();
      const int64_t rank = config.rank_of(module);
      if (rank < 1 || rank > quire::kMaxLoraRank) std::abort();
      if (!std::isfinite(config.scale_of(module))) std::abort();
    }
  } catch (const quire::Error&) {
  }
  return 0;
}
