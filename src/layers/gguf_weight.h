#pragma once
// Packs blocks of a GGUF file as rows of an integer weight.
//
// Thread safety: free functions without state; they may run at once on disjoint rows.
#include <cstdint>

#include "core/tensor.h"
#include "loader/gguf_types.h"
#include "loader/parameter.h"
#include "ops/weight.h"

namespace quire {

// Packs `blocks`, uint8 [rows, bytes], as rows of the weight from first_row on. Each row has the
// whole blocks that contain the tensor's `columns`, which are the weight's inputs. The weight's
// format comes from stored_format() for blocks of this type, perhaps mixed with others: its groups
// divide the type's, and its integers can hold the type's. Throws Error, without the tensor's name,
// where a scale or an offset is not finite.
void pack_gguf_rows(const GgufType& type, const Tensor& blocks, IndexRange columns,
                    int64_t first_row, ops::Weight& weight);

// Packs random numbers in place of blocks: float32 [rows, k] between -kDummyBound and kDummyBound,
// rounded with one scale.
void pack_dummy_rows(const Tensor& source, int64_t first_row, ops::Weight& weight);

}  // namespace quire
