#pragma once
// The tokenizer and the chat template of a model folder or a GGUF file.
//
// Thread safety: free functions of their arguments and the files.
#include <filesystem>

#include "quire/chat_template.h"
#include "quire/tokenizer.h"

namespace quire {

// Whether the model has a tokenizer or a chat template, well-formed or not.
bool has_tokenizer(const std::filesystem::path& model);
bool has_chat_template(const std::filesystem::path& model);

// Throws Error, naming the file and what was expected, where there is none or it cannot be used.
Tokenizer load_tokenizer(const std::filesystem::path& model);
ChatTemplate load_chat_template(const std::filesystem::path& model, TemplateLimits limits = {});

}  // namespace quire
