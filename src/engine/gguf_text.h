#pragma once
// The tokenizer and the chat template that a GGUF file's metadata holds: the keys under
// "tokenizer".
//
// Thread safety: free functions without state.
#include <string_view>

#include "loader/gguf_file.h"
#include "quire/chat_template.h"
#include "quire/tokenizer.h"
#include "tokenizer/tokenizer_texts.h"

namespace quire {

bool gguf_has_tokenizer(const GgufFile& header);
bool gguf_has_chat_template(const GgufFile& header);

// Throws Error naming the file and the key where there is none or it cannot be used.
Tokenizer gguf_tokenizer(const GgufFile& header);
// The same tokenizer as a folder's files.
TokenizerTexts gguf_tokenizer_texts(const GgufFile& header);
// A view of the file.
std::string_view gguf_chat_template_source(const GgufFile& header);
ChatTemplate gguf_chat_template(const GgufFile& header, TemplateLimits limits = {});

}  // namespace quire
