#include "quire/model_text.h"

#include "engine/gguf_text.h"
#include "loader/gguf_model.h"

namespace quire {
namespace fs = std::filesystem;

bool has_tokenizer(const fs::path& model) {
  if (is_gguf_path(model)) return gguf_has_tokenizer(GgufModel::open(model).header());
  return fs::exists(model / "tokenizer.json");
}

bool has_chat_template(const fs::path& model) {
  if (is_gguf_path(model)) return gguf_has_chat_template(GgufModel::open(model).header());
  return ChatTemplate::exists_in(model);
}

Tokenizer load_tokenizer(const fs::path& model) {
  if (!is_gguf_path(model)) return Tokenizer::from_folder(model);
  return gguf_tokenizer(GgufModel::open(model).header());
}

ChatTemplate load_chat_template(const fs::path& model, TemplateLimits limits) {
  if (!is_gguf_path(model)) return ChatTemplate::from_folder(model, limits);
  return gguf_chat_template(GgufModel::open(model).header(), limits);
}

}  // namespace quire
