#pragma once
// The config.json of a quantised model, with its quantization_config.
//
// Thread safety: a free function of its arguments and the files.
#include <filesystem>
#include <span>
#include <string>

#include "quantise/rounded_matrix.h"

namespace quire {

// Writes the source's config.json with a new quantization_config: all linear layers except `kept`
// are stored as `target` says.
void write_quantized_config(const std::filesystem::path& source, const std::filesystem::path& out,
                            const RoundingTarget& target, std::span<const std::string> kept);

}  // namespace quire
