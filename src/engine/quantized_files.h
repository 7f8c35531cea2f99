#pragma once
// The files of a quantised model beside its weights: config.json with its quantization_config, and
// what is copied.
//
// Thread safety: free functions of their arguments and the files.
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "quantise/rounded_matrix.h"

namespace quire {

// Writes the source's config.json with another quantization_config: its linear layers are stored as
// `target` says, except those of `kept`.
void write_quantized_config(const std::filesystem::path& source, const std::filesystem::path& out,
                            const RoundingTarget& target, std::span<const std::string> kept);

// Copies tokenizer, chat templates, generation config, licences: every file of the folder but its
// weights, the configs of quantisations, its model card and hidden files; of folders
// additional_chat_templates. Links become the files that they lead to. Returns the names of what
// the caller may miss: all else but safetensors, config.json and hidden files. Throws Error where a
// file cannot be copied, be it that its link leads nowhere.
std::vector<std::string> copy_texts(const std::filesystem::path& source,
                                    const std::filesystem::path& out);

}  // namespace quire
