#pragma once
// A GGUF model's tensors as a checkpoint's: under Hugging Face's names and in its order of rows.
//
// Thread safety: a free function without state.
#include <vector>

#include "loader/checkpoint.h"
#include "loader/gguf_model.h"

namespace quire {

// All weights, in the order of the files; they point into the model's mapped files. Throws Error
// where two get one name, and where a type can neither be loaded nor dequantised.
std::vector<CheckpointTensor> gguf_checkpoint_tensors(const GgufModel& model);

}  // namespace quire
