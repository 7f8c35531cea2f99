#pragma once
// The file of `quire check --write-reference`: a model's answer, for later comparison.
//
//   {"quire_reference": 1, "tolerance": 0.01, "prompt": "...", "prompt_token_ids": [...],
//    "output_token_ids": [...], "logprobs": [...], "runner_up_logprobs": [...]}
//
// Thread safety: pure functions.
#include <string>
#include <string_view>

#include "quire/model_check.h"

namespace quire::cli {

// The file's text, ended by a line feed.
std::string to_reference_text(const ModelReference& reference);

// Throws Error, opening with `where`, for a malformed file: fields that are missing, of another
// type or out of range, lists of different lengths.
ModelReference parse_reference(std::string_view text, std::string_view where);

// The reference in a file. Throws Error if it cannot be read.
ModelReference read_reference(const std::string& path);

}  // namespace quire::cli
