#pragma once
// What is said of a tensor that a model has no parameter for.
#include <string_view>

#include "loader/checkpoint.h"
#include "loader/parameter.h"

namespace quire {

// Throws Error, which tells a layer that is stored otherwise than `config`, a file's name, has it
// quantised from a tensor of no layer.
[[noreturn]] void throw_unexpected(const CheckpointTensor& tensor, const ParameterMap& parameters,
                                   std::string_view config);

}  // namespace quire
