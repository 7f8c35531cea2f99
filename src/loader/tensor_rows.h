#pragma once
// Rows of a checkpoint's tensor as the numbers that a parameter stores: in their order, dequantised
// where the file has blocks, and at an address that their type allows.
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

// The type whose blocks the tensor is made of, which are read as float32; null where it has plain
// numbers.
const GgufType* block_type_of(const CheckpointTensor& tensor);

// These rows and columns of the tensor, of which each number is read as `dtype`: float32 where it
// has blocks, else its own. A vector has one column. The result points into the file or, where that
// cannot be, into `scratch`.
Tensor read_rows(const CheckpointTensor& tensor, DType dtype, IndexRange rows, IndexRange columns,
                 std::vector<std::byte>& scratch);

// The blocks of these rows that have these columns: uint8 [rows, bytes].
Tensor read_blocks(const CheckpointTensor& tensor, const GgufType& type, IndexRange rows,
                   IndexRange columns, std::vector<std::byte>& scratch);

}  // namespace quire
