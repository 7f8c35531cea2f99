#pragma once
// The files beside the weights of a folder that is made from a GGUF file.
//
// Thread safety: a free function of its arguments and the files.
#include <filesystem>

#include "loader/gguf_model.h"

namespace quire {

// Writes what the file's metadata hold of them: tokenizer.json and tokenizer_config.json,
// chat_template.jinja, generation_config.json. Throws Error where the file's tokenizer cannot be
// used, and where one cannot be written.
void write_gguf_texts(const GgufModel& model, const std::filesystem::path& out);

}  // namespace quire
