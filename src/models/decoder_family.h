#pragma once
// Makes a family of the shared decoder out of its name and its options.
#include <memory>
#include <string_view>

#include "models/decoder.h"
#include "models/registry.h"

namespace quire {

// Family has `static constexpr std::string_view kArchitecture` and
// `static DecoderOptions options(const ModelConfig&)`.
template <typename Family>
ModelFamily decoder_family() {
  return {
      .architecture = Family::kArchitecture,
      .create = [](const ModelOptions& options) -> std::unique_ptr<Model> {
        return std::make_unique<Decoder>(options, Family::options(options.config));
      },
      .weight_memory =
          [](const ModelOptions& options) {
            return Decoder::weight_memory(options, Family::options(options.config));
          },
      .arena_bytes =
          [](const ModelOptions& options, int64_t max_tokens, int64_t max_logits) {
            return Decoder::arena_bytes(options, Family::options(options.config), max_tokens,
                                        max_logits);
          },
      .kv_cache_shape = Decoder::kv_cache_shape,
      .products =
          [](const ModelOptions& options) {
            return Decoder::products(options, Family::options(options.config));
          },
  };
}

}  // namespace quire
