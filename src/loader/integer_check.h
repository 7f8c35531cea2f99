#pragma once
// Whether integers beside quantised weights say what the layer is: the groups of its inputs, its
// shape.
//
// Thread safety: a free function without state.
#include "loader/checkpoint.h"
#include "loader/parameter.h"

namespace quire {

// Throws Error where a tensor of the dtype does not hold what `rule` says, which may be nothing.
// Of a rule of groups, `inputs` are those that the rank takes.
void check_integers(const CheckpointTensor& tensor, DType dtype, const IntegerRule& rule,
                    IndexRange inputs);

}  // namespace quire
