#pragma once
// The config.json of a quantised model, with its quantization_config.
//
// Thread safety: a free function of its arguments and the files.
#include <filesystem>
#include <span>
#include <string>

#include "quantise/rounded_matrix.h"

namespace quire {

// Writes the source's config.json with another quantization_config: its linear layers are stored as
// `target` says, except those of `kept`.
void write_quantized_config(const std::filesystem::path& source, const std::filesystem::path& out,
                            const RoundingTarget& target, std::span<const std::string> kept);

}  // namespace quire
