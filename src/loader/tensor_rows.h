#pragma once
// Rows of a checkpoint's tensor as the numbers that a parameter stores: in the parameter's order,
// dequantised where the file has blocks, and aligned for their type.
//
// Thread safety: free functions without state.
#include <cstddef>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"
#include "loader/checkpoint.h"
#include "loader/gguf_types.h"
#include "loader/parameter.h"

namespace quire {

// The type of the blocks that the tensor consists of, to be read as float32; null where it has
// plain numbers.
const GgufType* block_type_of(const CheckpointTensor& tensor);

// These rows and columns of the tensor, as `dtype`: float32 where it has blocks, else its own. A
// vector has one column. The result points into the file or, where that is not possible, into
// `scratch`.
Tensor read_rows(const CheckpointTensor& tensor, DType dtype, IndexRange rows, IndexRange columns,
                 std::vector<std::byte>& scratch);

// For each of these rows the blocks that contain these columns: uint8 [rows, bytes].
Tensor read_blocks(const CheckpointTensor& tensor, const GgufType& type, IndexRange rows,
                   IndexRange columns, std::vector<std::byte>& scratch);

}  // namespace quire
