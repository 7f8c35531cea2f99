#pragma once
// Compares what a model answers with what it answered before.
//
// Thread safety: pure functions.
#include <string>
#include <vector>

#include "quire/model_check.h"

namespace quire {

// Of their prompts: whether the template and the tokenizer make the same of the known question. In
// sentences; none: they do.
std::vector<std::string> compare_prompts(const KnownAnswer& answer, const KnownAnswer& reference);

// Of answers to the same prompt: the first difference, as a sentence. Tokens may differ where the
// reference's best two were within its tolerance, and what follows is then not compared.
std::vector<std::string> compare_answers(const KnownAnswer& answer,
                                         const ModelReference& reference);

}  // namespace quire
