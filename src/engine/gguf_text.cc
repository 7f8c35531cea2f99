#include "engine/gguf_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "quire/error.h"
#include "tokenizer/token_arrays.h"

namespace quire {
namespace {

constexpr std::string_view kKindKey = "tokenizer.ggml.model";
constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

std::optional<int32_t> id_of(const GgufFile& header, const std::string& name) {
  const auto id = header.integer("tokenizer.ggml." + name + "_token_id", 0, INT32_MAX);
  return id ? std::optional(static_cast<int32_t>(*id)) : std::nullopt;
}

TokenArrays token_arrays(const GgufFile& header) {
  const auto key = [](const char* name) { return std::string("tokenizer.ggml.") + name; };
  TokenArrays arrays;
  arrays.kind = header.required_string(kKindKey);
  arrays.pattern = header.string(key("pre")).value_or("");
  arrays.tokens = header.strings(key("tokens")).value_or(arrays.tokens);
  arrays.merges = header.strings(key("merges")).value_or(arrays.merges);
  arrays.scores = header.floats(key("scores")).value_or(arrays.scores);
  if (const auto kinds = header.integers(key("token_type"), INT32_MIN, INT32_MAX)) {
    std::transform(kinds->begin(), kinds->end(), std::back_inserter(arrays.kinds),
                   [](int64_t kind) { return static_cast<int32_t>(kind); });
  }
  arrays.bos_id = id_of(header, "bos");
  arrays.eos_id = id_of(header, "eos");
  arrays.unknown_id = id_of(header, "unknown");
  arrays.add_bos = header.boolean(key("add_bos_token"));
  arrays.add_eos = header.boolean(key("add_eos_token"));
  arrays.add_space_prefix = header.boolean(key("add_space_prefix"));
  arrays.strips_after_control =
      arrays.kind == "llama" && header.string("general.architecture") == "phi3";
  return arrays;
}

template <typename Made>
Made made_of_arrays(const GgufFile& header, Made (*make)(const TokenArrays&)) {
  const TokenArrays arrays = token_arrays(header);
  try {
    return make(arrays);
  } catch (const Error& error) {
    throw Error(fmt::format("Cannot use the tokenizer in {}: {}", header.name(), error.what()));
  }
}

// The special tokens that templates may name.
ChatTemplate::SpecialTokens template_tokens(const GgufFile& header) {
  ChatTemplate::SpecialTokens result;
  const auto tokens = header.strings("tokenizer.ggml.tokens");
  if (!tokens) return result;
  const std::pair<const char*, const char*> kNames[] = {{"bos", "bos_token"},
                                                        {"eos", "eos_token"},
                                                        {"unknown", "unk_token"},
                                                        {"padding", "pad_token"}};
  for (const auto& [name, variable] : kNames) {
    const std::optional<int32_t> id = id_of(header, name);
    if (id && static_cast<size_t>(*id) < tokens->size()) {
      result[variable] = std::string((*tokens)[static_cast<size_t>(*id)]);
    }
  }
  return result;
}

}  // namespace

bool gguf_has_tokenizer(const GgufFile& header) {
  const std::optional<std::string_view> kind = header.string(kKindKey);
  return kind && kind != "none" && kind != "no_vocab";
}

bool gguf_has_chat_template(const GgufFile& header) {
  return header.has(kTemplateKey);
}

Tokenizer gguf_tokenizer(const GgufFile& header) {
  return made_of_arrays(header, make_tokenizer);
}

TokenizerTexts gguf_tokenizer_texts(const GgufFile& header) {
  return made_of_arrays(header, tokenizer_texts);
}

std::string_view gguf_chat_template_source(const GgufFile& header) {
  const std::optional<std::string_view> source = header.string(kTemplateKey);
  if (!source) {
    header.fail(kTemplateKey,
                "is missing: the model has no chat template. It may be a base model; give it "
                "plain prompts");
  }
  return *source;
}

ChatTemplate gguf_chat_template(const GgufFile& header, TemplateLimits limits) {
  const std::string_view source = gguf_chat_template_source(header);
  try {
    return ChatTemplate(source, template_tokens(header), limits);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", header.name(), error.what()));
  }
}

}  // namespace quire
