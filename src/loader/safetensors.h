#pragma once
// The safetensors file format: a header in JSON that names each tensor, then their bytes.
//
// Format: https://github.com/huggingface/safetensors#format. Eight bytes with the header's length
// (little-endian), the header, and the data, which the tensors cover without gap or overlap.
// Thread safety: a free function without state.
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "loader/checkpoint.h"

namespace quire {

// The tensors of a whole file's bytes, in the order of their data; they point into `file`. `name`
// stands for the file in messages and in CheckpointTensor::file. Throws Error for a header that is
// truncated, larger than 100 MB (the format's own limit), no valid JSON or not of the format; for
// an unknown dtype, a tensor whose shape and dtype don't give its size, offsets outside the file,
// gaps, overlaps and names given twice.
std::vector<CheckpointTensor> parse_safetensors(std::span<const std::byte> file,
                                                const std::string& name);

}  // namespace quire
