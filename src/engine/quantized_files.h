#pragma once
// The files of a quantised model beside its weights: config.json with its quantization_config, and
// what is copied.
//
// Thread safety: free functions of their arguments and the files.
#include <filesystem>
#include <span>
#include <string>

#include "quantise/rounded_matrix.h"

namespace quire {

// Writes the source's config.json with another quantization_config: its linear layers are stored as
// `target` says, except those of `kept`.
void write_quantized_config(const std::filesystem::path& source, const std::filesystem::path& out,
                            const RoundingTarget& target, std::span<const std::string> kept);

// Copies tokenizer, chat template, generation config, licences: every file of the folder but its
// weights, config.json, its model card and hidden files.
void copy_texts(const std::filesystem::path& source, const std::filesystem::path& out);

}  // namespace quire
