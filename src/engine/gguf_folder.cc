#include "engine/gguf_folder.h"

#include <nlohmann/json.hpp>
#include <string>

#include "engine/gguf_text.h"
#include "engine/model_files.h"
#include "loader/config_json.h"
#include "loader/gguf_config.h"

namespace quire {

void write_gguf_texts(const GgufModel& model, const std::filesystem::path& out) {
  const GgufFile& header = model.header();
  if (gguf_has_tokenizer(header)) {
    const TokenizerTexts texts = gguf_tokenizer_texts(header);
    write_text_file(out / "tokenizer.json", texts.tokenizer_json);
    write_text_file(out / "tokenizer_config.json", texts.tokenizer_config_json);
  }
  if (gguf_has_chat_template(header)) {
    write_text_file(out / "chat_template.jinja", gguf_chat_template_source(header));
  }
  const nlohmann::ordered_json generation = generation_config_json(gguf_generation_config(model));
  if (!generation.empty()) {
    write_text_file(out / "generation_config.json", generation.dump(2) + "\n");
  }
}

}  // namespace quire
