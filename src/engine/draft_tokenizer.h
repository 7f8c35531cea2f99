#pragma once
// Whether a draft model reads and writes the tokens of the model that it drafts for.
//
// Thread safety: a free function of its arguments and the files.
#include <filesystem>

#include "quire/tokenizer.h"

namespace quire {

// Throws Error where the draft model has a tokenizer in which an id stands for another token. Ids
// that one of the two does not have, and draft models without a tokenizer, are taken.
void check_draft_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& draft_model);

}  // namespace quire
