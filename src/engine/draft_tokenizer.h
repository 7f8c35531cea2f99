#pragma once
// Whether a draft model reads and writes the tokens of the model that it drafts for.
//
// Thread safety: a free function of its arguments and the files.
#include <filesystem>

#include "quire/tokenizer.h"

namespace quire {

// Throws Error where an id stands for different tokens in the two models. Ids that only one of them
// has, and draft models without a tokenizer, are accepted.
void check_draft_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& draft_model);

}  // namespace quire
