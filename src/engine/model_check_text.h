#pragma once
// Whether a model's tokenizer and chat template fit each other and the model.
//
// Thread safety: free functions of immutable arguments.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quire/chat_template.h"
#include "quire/tokenizer.h"

namespace quire {

// What is wrong, in sentences. `vocab_size`: rows of the model's embedding.
std::vector<std::string> check_tokenizer(const Tokenizer& tokenizer,
                                         std::span<const int32_t> eos_token_ids,
                                         int64_t vocab_size);

// What is wrong with the rendering of a known conversation, in sentences. Throws Error where the
// template cannot render it.
std::vector<std::string> check_chat_template(const ChatTemplate& chat_template,
                                             const Tokenizer& tokenizer);

// The prompt that a check runs: a question, rendered where there is a template.
std::string known_prompt(const ChatTemplate* chat_template);

}  // namespace quire
