#pragma once
// Compares a model's answer with an earlier one.
//
// Thread safety: pure functions.
#include <string>
#include <vector>

#include "quire/model_check.h"

namespace quire {

// Compares the prompts: did template and tokenizer turn the known question into the same tokens?
// Each difference is a sentence; none: they are equal.
std::vector<std::string> compare_prompts(const KnownAnswer& answer, const KnownAnswer& reference);

// Compares answers to the same prompt: the first difference, as a sentence. Tokens may differ where
// the reference's best two were within its tolerance; what follows is then not compared.
std::vector<std::string> compare_answers(const KnownAnswer& answer,
                                         const ModelReference& reference);

}  // namespace quire
